package hostnet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/switchboard-project/switchboard/internal/needs"
)

func TestMain(m *testing.M) { os.Exit(needs.OwnNamespaces(m.Run)) }

// namespaces makes namespaces of this test's own and removes them when it ends.
func namespaces(t *testing.T, count int) []*Namespace {
	t.Helper()
	needs.Root(t)
	made := make([]*Namespace, count)
	for index := range made {
		name := fmt.Sprintf("hn%d-%d", os.Getpid(), index)
		namespace, err := EnsureNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		made[index] = namespace
		t.Cleanup(func() {
			namespace.Close()
			if err := DeleteNamespace(name); err != nil {
				t.Error(err)
			}
		})
	}
	return made
}

func mustRun(t *testing.T, namespace *Namespace, words ...string) string {
	t.Helper()
	output, err := namespace.Run(exec.Command(words[0], words[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	return string(output)
}

func TestNamespacesAreMadeOnceAndLeaveNothing(t *testing.T) {
	needs.Root(t)
	name := fmt.Sprintf("hn%d-once", os.Getpid())
	for range 2 {
		namespace, err := EnsureNamespace(name)
		if err != nil {
			t.Fatal(err)
		}
		namespace.Close()
	}
	if !NamespaceExists(name) {
		t.Error("the namespace does not exist")
	}
	if names, _ := NamespaceNames(name); len(names) != 1 {
		t.Errorf("listed %v", names)
	}
	for range 2 {
		if err := DeleteNamespace(name); err != nil {
			t.Fatal(err)
		}
	}
	if NamespaceExists(name) {
		t.Error("the namespace is still there")
	}
	if _, err := OpenNamespace(name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("open: %v", err)
	}
}

func TestDoRunsInsideAndReturnsHome(t *testing.T) {
	inside := namespaces(t, 1)[0]
	before, _ := os.Readlink("/proc/thread-self/ns/net")
	var within string
	if err := inside.Do(func() (err error) {
		within, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if within == before {
		t.Error("the function ran outside")
	}
	if now, _ := os.Readlink("/proc/self/ns/net"); now != before {
		t.Error("the process's first thread was left in another namespace")
	}
	failure := errors.New("as told")
	if err := inside.Do(func() error { return failure }); err != failure {
		t.Errorf("the function's error became %v", err)
	}
}

func TestVethPairCarriesBothFamilies(t *testing.T) {
	both := namespaces(t, 2)
	mac, _ := net.ParseMAC("02:00:00:00:00:01")
	one := Interface{
		Namespace: both[0], Name: "left", MAC: mac, MTU: 1400, Kernel: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24"), netip.MustParsePrefix("2001:db8::1/64")},
	}
	other := Interface{
		Namespace: both[1], Name: "right", MTU: 1400, Kernel: true,
		Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24"), netip.MustParsePrefix("2001:db8::2/64")},
	}
	for range 2 {
		if err := EnsureVeth(one, other); err != nil {
			t.Fatal(err)
		}
	}
	for _, address := range []string{"192.0.2.2", "2001:db8::2"} {
		mustRun(t, both[0], "ping", "-c", "1", "-W", "2", address)
	}
	if got, _ := both[0].MAC("left"); got.String() != mac.String() {
		t.Errorf("MAC %s, want %s", got, mac)
	}
	features := mustRun(t, both[0], "ethtool", "-k", "left")
	for _, feature := range []string{"tx-checksumming: off", "tx-tcp-segmentation: off", "generic-segmentation-offload: off", "generic-receive-offload: off", "tx-vlan-offload: off", "rx-vlan-offload: off"} {
		if !strings.Contains(features, feature) {
			t.Errorf("not %q:\n%s", feature, features)
		}
	}
}

func TestVethRefusesAnotherInterfaceOfTheName(t *testing.T) {
	both := namespaces(t, 2)
	if err := EnsureBridge(Interface{Namespace: both[0], Name: "left"}); err != nil {
		t.Fatal(err)
	}
	err := EnsureVeth(Interface{Namespace: both[0], Name: "left"}, Interface{Namespace: both[1], Name: "right"})
	if !errors.Is(err, ErrInterfaceTaken) || !strings.Contains(err.Error(), "left in "+both[0].Name) {
		t.Errorf("got %v", err)
	}
}

func TestBridgeAndRoutes(t *testing.T) {
	three := namespaces(t, 3)
	if err := EnsureBridge(Interface{Namespace: three[0], Name: "lan"}); err != nil {
		t.Fatal(err)
	}
	for index, host := range three[1:] {
		port := fmt.Sprintf("port%d", index)
		address := netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", index+1))
		end := Interface{Namespace: host, Name: "eth0", Kernel: true, Addresses: []netip.Prefix{address}}
		if err := EnsureVeth(Interface{Namespace: three[0], Name: port}, end); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := three[0].EnsureBridgePort("lan", port); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, second := three[1], three[2]
	loopback := netip.MustParsePrefix("203.0.113.1/32")
	if err := second.EnsureAddresses("lo", loopback); err != nil {
		t.Fatal(err)
	}
	route := Route{Destination: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("192.0.2.2")}
	for range 2 {
		if err := first.EnsureRoute(route); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, first, "ping", "-c", "1", "-W", "2", "203.0.113.1")
	if called, err := three[0].Run(exec.Command("cat", "/proc/sys/net/bridge/bridge-nf-call-iptables")); err == nil && string(called) != "0\n" {
		t.Error("bridged packets pass the IP packet filter")
	}
	for range 2 {
		if err := first.DeleteRoute(route); err != nil {
			t.Fatal(err)
		}
	}
	rule := Rule{Priority: 100, Interface: "eth0", Table: 10}
	for range 2 {
		if err := first.EnsureRule(rule); err != nil {
			t.Fatal(err)
		}
	}
	if rules := mustRun(t, first, "ip", "rule"); strings.Count(rules, "lookup 10") != 1 {
		t.Errorf("rules:\n%s", rules)
	}
	for range 2 {
		if err := first.DeleteRule(rule); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMacvlanSharesItsParent(t *testing.T) {
	three := namespaces(t, 3)
	end := Interface{Namespace: three[0], Name: "far", Kernel: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}
	if err := EnsureVeth(end, Interface{Namespace: three[1], Name: "near"}); err != nil {
		t.Fatal(err)
	}
	wanted := Interface{Namespace: three[2], Name: "mac0", Kernel: true, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.2/24")}}
	for range 2 {
		if err := EnsureMacvlan(wanted, three[1], "near"); err != nil {
			t.Fatal(err)
		}
	}
	mustRun(t, three[2], "ping", "-c", "1", "-W", "2", "192.0.2.1")
	for range 2 {
		if err := three[2].DeleteLink("mac0"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRulesetIsAppliedWholeOrNotAtAll(t *testing.T) {
	inside := namespaces(t, 1)[0]
	ctx := context.Background()
	if err := inside.ApplyRuleset(ctx, "table inet filter {\n chain forward { type filter hook forward priority 0; }\n}\n"); err != nil {
		t.Fatal(err)
	}
	if listing, err := inside.Ruleset(ctx, "inet", "filter"); err != nil || !strings.Contains(string(listing), `"forward"`) {
		t.Errorf("%s, %v", listing, err)
	}
	err := inside.ApplyRuleset(ctx, "table inet other {\n}\nadd rule inet filter forward tcp dport nonsense accept\n")
	var refused *RulesetError
	if !errors.As(err, &refused) || refused.Line != 3 || !strings.HasPrefix(refused.Text, "add rule") {
		t.Errorf("got %#v", err)
	}
	if _, err := inside.Ruleset(ctx, "inet", "other"); err == nil {
		t.Error("half of the ruleset was applied")
	}
}

func TestSysctlPathsKeepDotsOfInterfaces(t *testing.T) {
	cases := map[string]string{
		"net.ipv4.ip_forward":                "/proc/sys/net/ipv4/ip_forward",
		"net.ipv4.conf.all.forwarding":       "/proc/sys/net/ipv4/conf/all/forwarding",
		"net.ipv6.conf.eth0.10.disable_ipv6": "/proc/sys/net/ipv6/conf/eth0.10/disable_ipv6",
	}
	for name, want := range cases {
		if got := sysctlPath(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestStationsOfOneVLANReachEachOther(t *testing.T) {
	both := namespaces(t, 2)
	end := func(index int) Interface {
		address := netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", index+1))
		return Interface{Namespace: both[index], Name: "eth0", Kernel: true, Addresses: []netip.Prefix{address}}
	}
	if err := EnsureVeth(end(0), end(1)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := both[0].EnsureVLANTag("eth0", 20); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := both[0].Run(exec.Command("ping", "-c", "1", "-W", "1", "192.0.2.2")); err == nil {
		t.Error("a station without the tag answered")
	}
	if err := both[1].EnsureVLANTag("eth0", 20); err != nil {
		t.Fatal(err)
	}
	mustRun(t, both[0], "ping", "-c", "1", "-W", "2", "192.0.2.2")
}
