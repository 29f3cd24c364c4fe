package global

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

const directoryPrefix = "directory"

// publishDirectory makes the published directory say what is wanted: sites follow it.
func (g *Global) publishDirectory(ctx context.Context) error {
	g.mu.Lock()
	sites := g.world.Keys(chain.KindSite)
	g.mu.Unlock()
	for _, site := range sites {
		if _, err := g.siteLabel(ctx, chain.SiteName(site.Name)); err != nil {
			return err
		}
	}
	wanted := g.directory()
	entries, err := g.published.List(ctx, directoryPrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		message, keep := wanted[e.Key]
		if !keep {
			if err := g.withdraw(ctx, e.Key); err != nil {
				return err
			}
			continue
		}
		if value, err := marshal(message); err == nil && bytes.Equal(value, e.Value) {
			delete(wanted, e.Key)
		}
	}
	for key, message := range wanted {
		if err := put(ctx, g.published, key, message); err != nil {
			return fmt.Errorf("publish %s: %w", key, err)
		}
	}
	return nil
}

// withdraw removes a record, and lets go of the label of a site that is gone.
func (g *Global) withdraw(ctx context.Context, key string) error {
	if err := g.published.Delete(ctx, key); err != nil {
		return fmt.Errorf("withdraw %s: %w", key, err)
	}
	if site, ok := strings.CutPrefix(key, directoryPrefix+".site."); ok {
		return g.releaseSiteLabel(ctx, chain.SiteName(site))
	}
	return nil
}

// directory is every record that should be published, by key.
func (g *Global) directory() map[string]proto.Message {
	g.mu.Lock()
	defer g.mu.Unlock()
	records := map[string]proto.Message{bus.Key(directoryPrefix, "platform"): g.platformRecord()}
	for key, m := range g.messages {
		switch key.Kind {
		case chain.KindSite:
			records[bus.Key(directoryPrefix, "site", key.Name)] = &control.SiteRecord{Site: key.Name, Spec: m.GetSite().GetSpec(),
				Label: uint32(g.labels.sites[chain.SiteName(key.Name)])}
		case chain.KindLink:
			records[bus.Key(directoryPrefix, "link", key.Name)] = &control.LinkRecord{Link: key.Name, Spec: m.GetLink().GetSpec()}
		case chain.KindVnf:
			records[bus.Key(directoryPrefix, "vnf", key.Name)] = &control.VnfRecord{Vnf: key.Name, Spec: m.GetVnf().GetSpec()}
		case chain.KindDeployment:
			records[bus.Key(directoryPrefix, "deployment", key.Name)] = &control.DeploymentRecord{Deployment: key.Name,
				Spec: m.GetVnfDeployment().GetSpec()}
		case chain.KindEdge:
			records[bus.Key(directoryPrefix, "edge", owner(key.Customer), key.Name)] = &control.EdgeRecord{Edge: key.Name,
				Customer: string(key.Customer), Spec: m.GetEdge().GetSpec()}
		}
	}
	return records
}
