package instance

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/switchboard-project/switchboard/internal/vnf"
)

// nat has two instances with a pool of addresses, for two customers.
func nat() *Wanted {
	return &Wanted{
		Deployments: []Deployment{{Name: "nat", VNF: "nat", Driver: "nftables-nat", Instances: 2, Pool: []string{"203.0.113.16/29"}}},
		Placements: []Placement{{Place: place("nat", 16, 1), Customer: "acme", Chain: "web"},
			{Place: place("nat", 18, 1), Customer: "umbra", Chain: "web"}},
	}
}

func of(all []vnf.Attachment, instance string, chain uint32) vnf.Attachment {
	for _, a := range all {
		if a.Instance == instance && a.ChainLabel == chain {
			return a
		}
	}
	return vnf.Attachment{}
}

func TestNATGivesEachPlaceAnAddress(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	serve(t, a, nat())
	sources := map[netip.Addr]bool{}
	for _, instance := range []string{"nat-1", "nat-2"} {
		w := openWire(t, of(a.last.Attachments, instance, 16).IngressPort)
		for _, chain := range []uint32{16, 18} {
			at := of(a.last.Attachments, instance, chain)
			out := expect(t, w, at, true, tcp(client, server, syn))
			if !netip.MustParsePrefix("203.0.113.16/29").Contains(out.source.Addr()) || out.target != server {
				t.Errorf("%s: left as %s -> %s", instance, out.source, out.target)
			}
			sources[out.source.Addr()] = true
			back := expect(t, w, at, false, tcp(server, out.source, syn|ack))
			if back.source != server || back.target != client {
				t.Errorf("%s: the answer came as %s -> %s", instance, back.source, back.target)
			}
			// What nobody asked for stays out.
			expectNothing(t, w, at, false, tcp(other, out.source, syn))
		}
		if table := conntrack(t, a.config.Prefix+instance); strings.Count(table, "src=10.1.0.5") != 2 {
			t.Errorf("%s: want a connection of each customer:\n%s", instance, table)
		}
	}
	if len(sources) != 4 {
		t.Errorf("%d addresses for two places at two instances: %v", len(sources), sources)
	}
}

func TestNATWithoutAddressesSaysSo(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	w := nat()
	w.Deployments[0].Pool = []string{"203.0.113.16/31"}
	a.reconcile(context.Background(), w, 1)
	if len(a.last.Attachments) != 2 {
		t.Errorf("%d attachments with two addresses", len(a.last.Attachments))
	}
	if why := a.last.Problems[16] + a.last.Problems[18]; !strings.Contains(why, "larger pool") {
		t.Errorf("problems: %v", a.last.Problems)
	}
}
