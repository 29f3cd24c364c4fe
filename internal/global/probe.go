package global

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

const (
	// probeReady bounds how long forwarders may take to begin to follow a probe.
	probeReady = 2 * time.Second
	// probeTime is how long a probe is followed.
	probeTime = time.Second
	// probeLimit is more decisions than a forwarder takes on one packet.
	probeLimit = 200
	probePause = 20 * time.Millisecond
)

// sendProbe has an edge's forwarder take a packet as if it had come from the edge, and gathers what every forwarder does
// with it. The packet ends in a mark, by which forwarders know it whatever VNFs make of its headers.
func (g *Global) sendProbe(ctx context.Context, request *api.TraceRequest) (*api.TraceResponse, error) {
	f := &chain.Findings{}
	packet := parseProbe(request.Probe, f)
	if request.DurationMs > uint32(maximumTraceTime.Milliseconds()) {
		f.Add("durationMs", "more than 60000", "write at most 60000")
	}
	if len(f.All) > 0 {
		return nil, &Invalid{f.All}
	}
	edge, ingress, err := g.probeEdge(request.Customer, request.Probe)
	if err != nil {
		return nil, err
	}
	mark := make([]byte, markLength)
	if _, err := rand.Read(mark); err != nil {
		return nil, err
	}
	follow := cmp.Or(time.Duration(request.DurationMs)*time.Millisecond, probeTime)
	ask := &forwarder.TraceRequest{Probe: mark, Hold: !request.Probe.Leave, Limit: probeLimit,
		DurationMs: uint32((probeReady + follow).Milliseconds())}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	places := g.liveForwarders()
	told, failed := make(chan traced, 1), make(chan error, 1)
	go func() {
		all, err := g.traceEverywhere(ctx, places, ask)
		told <- all
		failed <- err
	}()
	if err := g.awaitFollowers(ctx, places, mark); err != nil {
		return nil, err
	}
	if err := g.inject(ctx, ingress, &forwarder.InjectRequest{Probe: mark, Edge: edge, Packet: packet.bytes(mark)}); err != nil {
		return nil, &Refused{Unavailable, fmt.Sprintf("forwarder %s does not send the probe: %v", ingress, err)}
	}
	all, err := <-told, <-failed
	if err != nil {
		return nil, err
	}
	inPathOrder(all.hops)
	response := &api.TraceResponse{Outcome: outcomeOf(all.hops, request.Probe.Leave, ingress), CutShort: all.cutShort}
	for _, h := range all.hops {
		response.Hops = append(response.Hops, apiHop(h))
	}
	return response, nil
}

// probeEdge finds a probe's edge, the customer's or a shared one, and the forwarder that has it open. At a trunk it is the edge instance
// of the probe's VLAN.
func (g *Global) probeEdge(customer string, probe *api.Probe) (id string, at forwarderPlace, err error) {
	var spec *api.EdgeSpec
	name := probe.Edge
	g.mu.Lock()
	for _, of := range []string{customer, ""} {
		key := chain.Key{Kind: chain.KindEdge, Customer: chain.CustomerName(of), Name: name}
		if m := g.messages[key]; m != nil && spec == nil {
			spec, id = m.GetEdge().GetSpec(), owner(key.Customer)+"/"+name
		}
	}
	g.mu.Unlock()
	if spec == nil {
		return "", at, &Refused{NotFound, fmt.Sprintf("there is no edge %s of customer %q, nor a shared one", name, customer)}
	}
	switch vlans := spec.Vlans; {
	case len(vlans) > 0 && !slices.Contains(vlans, probe.Vlan):
		return "", at, &Invalid{[]chain.Finding{{Field: "probe.vlan", Description: fmt.Sprintf("edge %s has the VLANs %v", name, vlans),
			Fix: "write the one that the packet bears"}}}
	case len(vlans) > 0:
		id = fmt.Sprintf("%s.%d", id, probe.Vlan)
	case probe.Vlan != 0 && probe.Vlan != spec.Vlan:
		return "", at, &Invalid{[]chain.Finding{{Field: "probe.vlan", Description: fmt.Sprintf("edge %s has not VLAN %d", name, probe.Vlan),
			Fix: "leave it out"}}}
	}
	each(g.observed, func(site chain.SiteName, _ string, f *control.ForwarderRecord) {
		if string(site) == spec.Site && f.Alive && slices.Contains(f.Edges, id) {
			at = forwarderPlace{string(site), f.Forwarder}
		}
	})
	if at.forwarder == "" {
		return "", at, &Refused{Unavailable, fmt.Sprintf("no live forwarder of site %s has edge %s open; see describe edge %s", spec.Site, name, name)}
	}
	return id, at, nil
}

// awaitFollowers waits until every forwarder follows the probe: one that did not would let it leave.
func (g *Global) awaitFollowers(ctx context.Context, places []forwarderPlace, mark []byte) error {
	ctx, cancel := context.WithTimeout(ctx, probeReady)
	defer cancel()
	for _, place := range places {
		for {
			err := g.inject(ctx, place, &forwarder.InjectRequest{Probe: mark})
			if err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return &Refused{Unavailable, fmt.Sprintf("forwarder %s does not follow the probe, which was not sent: %v", place, err)}
			case <-time.After(probePause):
			}
		}
	}
	return nil
}

func (g *Global) inject(ctx context.Context, at forwarderPlace, request *forwarder.InjectRequest) error {
	payload, err := proto.Marshal(request)
	if err == nil {
		_, err = g.connection.Request(ctx, at.site, bus.Key("forwarder", at.forwarder, "inject"), payload)
	}
	return err
}

// inPathOrder sorts the decisions on one packet as it met them. Clocks of sites may differ; stages do not.
func inPathOrder(hops []*forwarder.TraceHop) {
	overTunnel := func(h *forwarder.TraceHop) int {
		if strings.HasPrefix(h.From, "forwarder:") {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(hops, func(a, b *forwarder.TraceHop) int {
		// Where a packet is dropped before its stage is known, the service index is 0 and that is its end.
		return cmp.Or(cmp.Compare(b.ServiceIndex, a.ServiceIndex), cmp.Compare(overTunnel(a), overTunnel(b)), cmp.Compare(a.TimeUnixNs, b.TimeUnixNs))
	})
}

// outcomeOf says where a probe ended and why.
func outcomeOf(hops []*forwarder.TraceHop, leave bool, ingress forwarderPlace) *api.ProbeOutcome {
	if len(hops) == 0 {
		return &api.ProbeOutcome{Description: fmt.Sprintf("forwarder %s took it and told of no decision", ingress)}
	}
	last := hops[len(hops)-1]
	kind, name, _ := strings.Cut(last.To, ":")
	at := fmt.Sprintf("forwarder %s/%s", last.Site, last.Forwarder)
	switch {
	case last.Dropped:
		return &api.ProbeOutcome{Description: fmt.Sprintf("%s dropped it: %s", at, last.Decision)}
	case kind == "edge" && last.Held:
		return &api.ProbeOutcome{Reached: true, Description: fmt.Sprintf("it came to edge %s at site %s, where it was held", name, last.Site)}
	case kind == "edge" && leave:
		return &api.ProbeOutcome{Reached: true, Description: fmt.Sprintf("it left by edge %s at site %s", name, last.Site)}
	case kind == "edge":
		return &api.ProbeOutcome{Description: fmt.Sprintf("it waits at edge %s of site %s: nobody answers for its next hop", name, last.Site)}
	case kind == "vnf":
		vnf, instance, _ := strings.Cut(name, "/")
		return &api.ProbeOutcome{Description: fmt.Sprintf("VNF %s did not give it back: instance %s at site %s dropped or kept it", vnf, instance, last.Site)}
	case kind == "forwarder":
		return &api.ProbeOutcome{Description: fmt.Sprintf("%s sent it to forwarder %s, where it did not arrive", at, name)}
	}
	return &api.ProbeOutcome{Description: fmt.Sprintf("%s took it for itself: it is no packet of a chain", at)}
}
