package global

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// TestProbePacketsHaveRightChecksums: each checksum, summed over what it covers, gives all ones (RFC 1071).
func TestProbePacketsHaveRightChecksums(t *testing.T) {
	mark := []byte("0123456789abcdef")
	for _, p := range []*api.Probe{
		{Edge: "e", Protocol: "tcp", Source: "10.1.0.10", Destination: "198.51.100.80", DestinationPort: 80},
		{Edge: "e", Protocol: "udp", Source: "10.1.0.10", Destination: "198.51.100.80", DestinationPort: 53, SourcePort: 7},
		{Edge: "e", Protocol: "icmp", Source: "10.1.0.10", Destination: "198.51.100.80"},
		{Edge: "e", Protocol: "tcp", Source: "2001:db8::1", Destination: "2001:db8::2", DestinationPort: 80},
		{Edge: "e", Protocol: "icmpv6", Source: "2001:db8::1", Destination: "2001:db8::2"},
	} {
		f := &chain.Findings{}
		packet := parseProbe(p, f)
		if len(f.All) > 0 {
			t.Fatalf("%v: %v", p, f.All)
		}
		bytes := packet.bytes(mark)
		if !strings.HasSuffix(string(bytes), string(mark)) {
			t.Errorf("%v: the mark is not at the end", p)
		}
		header, source := 20, bytes[12:16]
		if packet.source.Is6() {
			header, source = 40, bytes[8:24]
		} else if got := sum(0, bytes[:header]); got != 0xffff {
			t.Errorf("%v: header sums to %#x", p, got)
		}
		if from, _ := netip.AddrFromSlice(source); from != packet.source {
			t.Errorf("%v: source %v", p, from)
		}
		pseudo := packet.pseudoHeader(len(bytes) - header)
		if packet.protocol == protocolICMP {
			pseudo = 0
		}
		if got := sum(pseudo, bytes[header:]); got != 0xffff {
			t.Errorf("%v: transport sums to %#x", p, got)
		}
	}
}

// TestProbesDrawPortsThatNoConnectionHas: a port of Linux's own range may have been that of a connection a moment ago, whose
// way the probe would take.
func TestProbesDrawPortsThatNoConnectionHas(t *testing.T) {
	drawn := map[uint16]bool{}
	for range 10000 {
		packet := parseProbe(&api.Probe{Edge: "e", Protocol: "tcp", Source: "10.1.0.10", Destination: "198.51.100.80", DestinationPort: 80}, &chain.Findings{})
		if packet.sourcePort < 61000 {
			t.Fatalf("drew port %d", packet.sourcePort)
		}
		drawn[packet.sourcePort] = true
	}
	if len(drawn) < 1000 {
		t.Errorf("drew %d ports in 10000", len(drawn))
	}
}

func TestWrongProbesAreRefusedByField(t *testing.T) {
	right := func() *api.Probe {
		return &api.Probe{Edge: "lan", Protocol: "tcp", Source: "10.1.0.10", Destination: "198.51.100.80", DestinationPort: 80}
	}
	for field, change := range map[string]func(*api.Probe){
		"probe.edge":            func(p *api.Probe) { p.Edge = "" },
		"probe.protocol":        func(p *api.Probe) { p.Protocol = "sctp" },
		"probe.source":          func(p *api.Probe) { p.Source = "10.1.0.0/24" },
		"probe.destination":     func(p *api.Probe) { p.Destination = "2001:db8::1" },
		"probe.sourcePort":      func(p *api.Probe) { p.SourcePort = 65536 },
		"probe.destinationPort": func(p *api.Probe) { p.DestinationPort = 0 },
	} {
		probe, f := right(), &chain.Findings{}
		change(probe)
		parseProbe(probe, f)
		if len(f.All) != 1 || f.All[0].Field != field {
			t.Errorf("%s: %v", field, f.All)
		}
	}
	f := &chain.Findings{}
	if parseProbe(right(), f); len(f.All) > 0 {
		t.Errorf("refused: %v", f.All)
	}
}

func TestOutcomeOfAProbeSaysWhereAndWhy(t *testing.T) {
	at := func(site string, index uint32, from, to string) *forwarder.TraceHop {
		return &forwarder.TraceHop{Site: site, Forwarder: "f1", ServiceIndex: index, Stage: 256 - index, From: from, To: to, Decision: "new flow"}
	}
	enter, cross := at("office", 255, "edge:acme/lan", "forwarder:west/f1"), at("west", 255, "forwarder:office/f1", "vnf:fw/fw-1")
	left := at("west", 254, "vnf:fw/fw-1", "edge:-/internet")
	held := at("west", 254, "vnf:fw/fw-1", "edge:-/internet")
	held.Held = true
	unclassified := &forwarder.TraceHop{Site: "office", Forwarder: "f1", From: "edge:acme/lan", Decision: "edge_unclassified", Dropped: true}
	for _, c := range []struct {
		hops    []*forwarder.TraceHop
		leave   bool
		reached bool
		words   string
	}{
		{nil, false, false, "no decision"},
		{[]*forwarder.TraceHop{unclassified}, false, false, "office/f1 dropped it: edge_unclassified"},
		{[]*forwarder.TraceHop{enter}, false, false, "to forwarder west/f1, where it did not arrive"},
		{[]*forwarder.TraceHop{cross, enter}, false, false, "VNF fw did not give it back: instance fw-1 at site west"},
		{[]*forwarder.TraceHop{held, cross, enter}, false, true, "edge -/internet at site west, where it was held"},
		{[]*forwarder.TraceHop{left, cross, enter}, true, true, "left by edge -/internet"},
		{[]*forwarder.TraceHop{left, cross, enter}, false, false, "nobody answers for its next hop"},
	} {
		inPathOrder(c.hops)
		got := outcomeOf(c.hops, c.leave, forwarderPlace{"office", "f1"})
		if got.Reached != c.reached || !strings.Contains(got.Description, c.words) {
			t.Errorf("%v, want %v %q", got, c.reached, c.words)
		}
	}
}

func TestProbeNeedsAnOpenEdge(t *testing.T) {
	p := newPlatform(t, "hq", "office")
	p.startGlobal()
	_, err := p.g.Trace(testContext(t), &api.TraceRequest{Customer: "acme", Probe: &api.Probe{Edge: "nowhere", Protocol: "icmp",
		Source: "10.1.0.10", Destination: "198.51.100.80"}})
	var refused *Refused
	if !errors.As(err, &refused) || refused.Reason != NotFound {
		t.Errorf("got %v, want a refusal of reason %s", err, NotFound)
	}
}
