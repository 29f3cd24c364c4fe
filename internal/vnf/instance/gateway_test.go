package instance

import (
	"context"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

var (
	client = netip.MustParseAddrPort("10.1.0.5:40000")
	server = netip.MustParseAddrPort("198.51.100.7:80")
	other  = netip.MustParseAddrPort("198.51.100.7:443")
)

const soon, never = 30 * time.Second, 150 * time.Millisecond

// firewall has one instance that lets TCP to port 80 through, for two customers with equal addresses.
func firewall(t *testing.T, port string) *Wanted {
	allow := options(t, map[string]any{"default": "drop", "rules": []any{
		map[string]any{"protocol": "tcp", "destinationPorts": []any{port}, "verdict": "accept"}}})
	return &Wanted{
		Deployments: []Deployment{{Name: "fw", VNF: "firewall", Driver: "nftables-firewall", Instances: 1}},
		Placements: []Placement{{Place: place("firewall", 16, 1), Customer: "acme", Chain: "web", Options: allow},
			{Place: place("firewall", 18, 1), Customer: "umbra", Chain: "web", Options: allow}},
	}
}

// serve takes the agent's step and returns the attachments by chain label.
func serve(t *testing.T, a *Agent, w *Wanted) map[uint32]vnf.Attachment {
	t.Helper()
	a.reconcile(context.Background(), w, 1)
	for _, s := range a.last.Instances {
		if s.Reason != "" {
			t.Fatalf("instance %s: %s", s.Name, s.Reason)
		}
	}
	if len(a.last.Problems) > 0 {
		t.Fatalf("problems: %v", a.last.Problems)
	}
	found := map[uint32]vnf.Attachment{}
	for _, at := range a.last.Attachments {
		found[at.ChainLabel] = at
	}
	return found
}

// expect sends a packet in by one side and wants it out of the other.
func expect(t *testing.T, w *wire, at vnf.Attachment, forward bool, d datagram) datagram {
	t.Helper()
	in, out := at.IngressMAC, at.EgressMAC
	if !forward {
		in, out = out, in
	}
	d.to = in
	w.send(d)
	got, ok := w.receive(soon)
	if !ok {
		t.Fatalf("%s -> %s did not come through", d.source, d.target)
	}
	if got.from.String() != out.String() || got.to.String() != w.mac.String() {
		t.Fatalf("came out of %s to %s, want %s to %s", got.from, got.to, out, w.mac)
	}
	return got
}

func expectNothing(t *testing.T, w *wire, at vnf.Attachment, forward bool, d datagram) {
	t.Helper()
	d.to = at.IngressMAC
	if !forward {
		d.to = at.EgressMAC
	}
	w.send(d)
	if got, ok := w.receive(never); ok {
		t.Fatalf("%s -> %s came through as %s -> %s", d.source, d.target, got.source, got.target)
	}
}

func tcp(from, to netip.AddrPort, flags byte) datagram {
	return datagram{source: from, target: to, protocol: unix.IPPROTO_TCP, flags: flags}
}

func conntrack(t *testing.T, namespace string) string {
	t.Helper()
	ns, err := hostnet.OpenNamespace(namespace)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	text, err := ns.Run(exec.Command("conntrack", "-L"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const syn, ack = 0x02, 0x10

func TestFirewallKeepsStateForEachPlaceApart(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	at := serve(t, a, firewall(t, "80"))
	w := openWire(t, at[16].IngressPort)

	expectNothing(t, w, at[16], true, tcp(client, other, syn))
	expectNothing(t, w, at[16], false, tcp(server, client, syn))
	expect(t, w, at[16], true, tcp(client, server, syn))
	expect(t, w, at[16], false, tcp(server, client, syn|ack))
	// The other customer has the same addresses, and no connection yet: its answer belongs to nothing.
	expectNothing(t, w, at[18], false, tcp(server, client, syn|ack))
	expect(t, w, at[18], true, tcp(client, server, syn))

	table := conntrack(t, a.config.Prefix+"fw-1")
	if n := strings.Count(table, "dport=80"); n != 2 || !strings.Contains(table, "zone=1") || !strings.Contains(table, "zone=2") {
		t.Errorf("want one connection in zone 1 and one in zone 2, have:\n%s", table)
	}
}

func TestNewOptionsLeaveEstablishedConnections(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	at := serve(t, a, firewall(t, "80"))
	w := openWire(t, at[16].IngressPort)
	expect(t, w, at[16], true, tcp(client, server, syn))
	expect(t, w, at[16], false, tcp(server, client, syn|ack))

	serve(t, a, firewall(t, "443"))
	expect(t, w, at[16], true, tcp(client, other, syn))
	expectNothing(t, w, at[16], true, tcp(netip.MustParseAddrPort("10.1.0.5:40001"), server, syn))
	acknowledged := tcp(client, server, ack)
	expect(t, w, at[16], true, acknowledged)
}

func TestAgentAdoptsWhatItFinds(t *testing.T) {
	privateNamespace(t)
	store := newMemory()
	a := testAgent(t, store)
	before := serve(t, a, firewall(t, "80"))
	w := openWire(t, before[16].IngressPort)
	expect(t, w, before[16], true, tcp(client, server, syn))

	again := testAgent(t, store)
	after := serve(t, again, firewall(t, "80"))
	if before[16].IngressMAC.String() != after[16].IngressMAC.String() || before[18].EgressMAC.String() != after[18].EgressMAC.String() {
		t.Errorf("addresses changed: %v, %v", before, after)
	}
	expect(t, w, after[16], false, tcp(server, client, syn|ack))
}
