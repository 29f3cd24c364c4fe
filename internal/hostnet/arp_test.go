package hostnet

import (
	"net/netip"
	"testing"
	"time"
)

func TestARPIsAnsweredByItsOwnerOnly(t *testing.T) {
	spaces := namespaces(t, 2)
	err := EnsureVeth(Interface{Namespace: spaces[0], Name: "wan0"},
		Interface{Namespace: spaces[1], Name: "wan0", Kernel: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}})
	if err != nil {
		t.Fatal(err)
	}
	own := netip.MustParseAddr("192.0.2.1")
	for target, patience := range map[string]time.Duration{"192.0.2.2": 30 * time.Second, "192.0.2.3": 300 * time.Millisecond} {
		want := target == "192.0.2.2"
		got, err := spaces[0].AnswersARP("wan0", own, netip.MustParseAddr(target), patience)
		if err != nil || got != want {
			t.Errorf("%s: answered %v, %v; want %v", target, got, err, want)
		}
	}
	if _, err := spaces[0].AnswersARP("absent", own, own, time.Second); err == nil {
		t.Error("no error for an interface that does not exist")
	}
	if _, err := spaces[0].AnswersARP("wan0", own, netip.MustParseAddr("2001:db8::1"), time.Second); err == nil {
		t.Error("no error for an IPv6 address")
	}
}
