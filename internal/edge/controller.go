// Package edge is the edge service of a site: which packets enter which chain. Its controller guards the classifiers of
// the site's edges in two-phase commit.
package edge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/fault"
	"github.com/switchboard-project/switchboard/internal/matches"
	"github.com/switchboard-project/switchboard/internal/participant"
)

// Service is the name under which a site's edge controller takes part in two-phase commit.
const Service = "edge"

// Status is an edge as its site sees it.
type Status struct {
	// Customer that owns it; empty: shared.
	Customer string
	// Prefixes are those behind it, as CIDR; none: any.
	Prefixes []string
	// Vlans are the IEEE 802.1Q identifiers of its frames; none: they bear no tag.
	Vlans []uint32
	Up    bool
	// Reason says why it is not up.
	Reason string
	// ForwarderAway says that nothing but its forwarder is missing. That one holds its place: a chain is agreed to, and
	// carries traffic when the forwarder is back.
	ForwarderAway bool
}

// Controller is a site's edge controller: it agrees to classify a chain's packets at edges that exist, are up and may
// serve the customer, and refuses matches that nobody could tell apart.
type Controller struct {
	site       string
	connection *bus.Connection
	log        *slog.Logger
	// look finds an edge of the site by owner and name.
	look func(customer, name string) (Status, bool)
}

// NewController makes the controller of the connection's site. look is called from several goroutines.
func NewController(connection *bus.Connection, look func(customer, name string) (Status, bool), log *slog.Logger) *Controller {
	return &Controller{site: connection.Site(), connection: connection, look: look, log: log}
}

// Run serves until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	p, err := participant.Open(ctx, participant.Config{
		Name: "edge@" + c.site, Store: c.connection.Local("edge"), Logger: c.log, Admit: c.admit,
		// Classifiers follow the chain record; a reservation only keeps others out.
		Apply: func(context.Context, []*control.Prepare) error { return nil },
		Ask:   participant.AskOver(c.connection), Fault: fault.Point,
	})
	if err != nil {
		return err
	}
	return p.Serve(ctx, c.connection, Service)
}

func (c *Controller) admit(request *control.Prepare, held []*control.Prepare) *control.Rejection {
	for i, binding := range request.Edges {
		if reason := c.refusal(request, binding, held); reason != "" {
			return &control.Rejection{Site: c.site, Reason: fmt.Sprintf("edges[%d]: edge %s/%s: %s", i,
				cmp.Or(binding.EdgeCustomer, "-"), binding.Edge, reason)}
		}
	}
	return nil
}

// refusal says why a binding cannot be had, "" where it can.
func (c *Controller) refusal(request *control.Prepare, binding *control.EdgeBinding, held []*control.Prepare) string {
	status, exists := c.look(binding.EdgeCustomer, binding.Edge)
	switch {
	case !exists:
		return fmt.Sprintf("site %s has no such edge", c.site)
	case status.Customer != "" && status.Customer != request.Customer:
		return fmt.Sprintf("belongs to customer %s, not %s", status.Customer, request.Customer)
	case !status.Up && !status.ForwarderAway:
		return "is down: " + status.Reason
	}
	f := &chain.Findings{}
	match := matches.Parse("match.", binding.Match, f)
	if len(f.All) > 0 {
		return f.All[0].String()
	}
	if binding.Ingress {
		if _, any := match.From(status.Prefixes); !any {
			return fmt.Sprintf("match.sourcePrefixes: none of %s lies behind the edge, which has %s; correct one or the other",
				strings.Join(match.SourceStrings(), ", "), strings.Join(status.Prefixes, ", "))
		}
		if len(match.Vlans) > 0 && !slices.ContainsFunc(status.Vlans, match.Bears) {
			return fmt.Sprintf("match.vlans: none of %v is the edge's, which has %v; correct one or the other", match.Vlans, status.Vlans)
		}
		return conflict(request, binding, match, held)
	}
	return ""
}

// conflict finds a chain whose packets at the same ingress edge could not be told from the requested ones: matches may
// lie within each other, the narrower comes first; they may not be equal or cross.
func conflict(request *control.Prepare, binding *control.EdgeBinding, match chain.Match, held []*control.Prepare) string {
	for _, other := range held {
		if other.Customer == request.Customer && other.Chain == request.Chain {
			continue // another version: classifiers are of the newest
		}
		for _, b := range other.Edges {
			if !b.Ingress || b.Edge != binding.Edge || b.EdgeCustomer != binding.EdgeCustomer {
				continue
			}
			theirs := matches.Of(b.Match)
			if !match.Overlaps(theirs) || match.Contains(theirs) != theirs.Contains(match) {
				continue
			}
			how := "crosses"
			if match.Contains(theirs) {
				how = "equals"
			}
			return fmt.Sprintf("the match %s that of chain %s/%s; make one lie within the other, or apart", how, other.Customer, other.Chain)
		}
	}
	return ""
}
