package instance

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// inside runs a program in an instance's namespace.
func inside(t *testing.T, a *Agent, instance string, words ...string) {
	t.Helper()
	ns, err := hostnet.OpenNamespace(a.config.Prefix + instance)
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	if output, err := ns.Run(exec.Command(words[0], words[1:]...)); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}

// stepUntil takes steps as often as Run does, until the only instance is in a state.
func stepUntil(t *testing.T, a *Agent, w *Wanted, state api.VnfInstanceState, patience time.Duration) Status {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		time.Sleep(probeInterval)
		step(a, w)
		if a.last.Instances[0].State == state {
			return a.last.Instances[0]
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %s: %s", a.last.Instances[0].State, a.last.Instances[0].Reason)
		}
	}
}

const blackhole = "add table ip foreign; add chain ip foreign f { type filter hook forward priority -5; }; add rule ip foreign f drop"

func TestInstanceThatLetsNothingThroughIsDead(t *testing.T) {
	wanted := map[string]func(*testing.T) *Wanted{
		"fw": func(t *testing.T) *Wanted { return firewall(t, "80") }, "bf": filter,
		"nat": func(*testing.T) *Wanted { w := nat(); w.Deployments[0].Instances = 1; return w }}
	for _, c := range []struct {
		name, instance string
		injury         []string
		reason         string
		heal           []string // nil where the agent repairs it
	}{
		{"IPv4 is not forwarded", "fw", []string{"sysctl", "-w", "net.ipv4.conf.all.forwarding=0"}, "net.ipv4.conf.all.forwarding is \"0\"", nil},
		{"IPv6 is not forwarded", "fw", []string{"sysctl", "-w", "net.ipv6.conf.all.forwarding=0"}, "net.ipv6.conf.all.forwarding is \"0\"", nil},
		{"others drop packets", "nat", []string{"nft", blackhole}, "table ip foreign", []string{"nft", "delete table ip foreign"}},
		{"others drop frames", "bf", []string{"nft", strings.ReplaceAll(blackhole, "ip foreign", "bridge foreign")}, "table bridge foreign",
			[]string{"nft", "delete table bridge foreign"}},
		{"the bridge is down", "bf", []string{"ip", "link", "set", "br0", "down"}, "bridge br0 is down", nil},
		{"the bridge lost an interface", "bf", []string{"ip", "link", "set", "out0", "nomaster"}, "from in0 to out0", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			privateNamespace(t)
			a := testAgent(t, newMemory())
			w := wanted[c.instance](t)
			stepUntil(t, a, w, stateHealthy, soon)
			heal := func() {
				if c.heal != nil {
					inside(t, a, c.instance+"-1", c.heal...)
				}
				stepUntil(t, a, w, stateHealthy, soon)
			}
			var status Status
			for attempt := 1; ; attempt++ { // a busy machine makes it later, never sooner
				begun := time.Now()
				inside(t, a, c.instance+"-1", c.injury...)
				status = stepUntil(t, a, w, stateDead, soon)
				took := time.Since(begun)
				if took <= time.Second {
					break
				}
				if attempt == 4 {
					t.Fatalf("dead after %s", took)
				}
				heal()
			}
			if !strings.Contains(status.Reason, c.reason) {
				t.Errorf("the reason is %q, want %q in it", status.Reason, c.reason)
			}
			for _, at := range a.last.Attachments {
				if at.State != vnf.Dead || at.Weight != 0 {
					t.Errorf("attachment %s gets connections: %+v", at.ID, at)
				}
			}
			if len(a.last.Attachments) != 2 {
				t.Errorf("%d attachments", len(a.last.Attachments))
			}
			heal()
		})
	}
}

// TestPlaceThatLetsNothingThroughIsOutOfUse: what is wrong with one of an instance's places takes that place out of use; the instance
// serves its other chain on.
func TestPlaceThatLetsNothingThroughIsOutOfUse(t *testing.T) {
	for _, c := range []struct {
		name   string
		injury []string
		index  int
		reason string
	}{
		{"an interface does not forward", []string{"sysctl", "-w", "net.ipv4.conf.i2.forwarding=0"}, 2, "from i2 to e2"},
		{"an interface is down", []string{"ip", "link", "set", "e1", "down"}, 1, "interface e1 in namespace"},
		{"an interface is gone", []string{"ip", "link", "del", "i2"}, 2, "interface i2 in namespace"},
		{"a routing table is empty", []string{"ip", "route", "flush", "table", "100002"}, 1, "routing table 100002 has 0 IPv4 routes"},
		{"a rule is gone", []string{"ip", "rule", "del", "iif", "i1"}, 1, "no IPv4 rule leads to routing table 100003"},
	} {
		t.Run(c.name, func(t *testing.T) {
			privateNamespace(t)
			a := testAgent(t, newMemory())
			w := nat()
			w.Deployments[0].Instances = 1
			stepUntil(t, a, w, stateHealthy, soon)
			failed := map[int]string{1: "acme/web", 2: "umbra/web"}[c.index]
			inside(t, a, "nat-1", c.injury...)
			status := awaitFailed(t, a, w, failed)
			if status.State != stateHealthy || !strings.Contains(status.Reason, "out of use for chain "+failed+": ") || !strings.Contains(status.Reason, c.reason) {
				t.Errorf("the instance is %s because %q, want %q for %s", status.State, status.Reason, c.reason, failed)
			}
			states := map[vnf.State]int{}
			for _, at := range a.last.Attachments {
				states[at.State]++
			}
			if states[vnf.Dead] != 1 || states[vnf.Active] != 1 {
				t.Errorf("attachments %+v, want one dead and one active", a.last.Attachments)
			}
			if status := awaitFailed(t, a, w, ""); status.State != stateHealthy || status.Reason != "" {
				t.Errorf("repaired it is %s because %q", status.State, status.Reason)
			}
		})
	}
}

// awaitFailed takes steps until the only instance serves all chains but one.
func awaitFailed(t *testing.T, a *Agent, w *Wanted, failed string) Status {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < soon; time.Sleep(probeInterval) {
		step(a, w)
		if strings.Join(a.last.Instances[0].Failed, " ") == failed {
			return a.last.Instances[0]
		}
	}
	t.Fatalf("the instance fails chains %v, want %q: %s", a.last.Instances[0].Failed, failed, a.last.Instances[0].Reason)
	return Status{}
}

// TestProbesAreNobodysBusiness: neither forwarder nor connection tracking sees probes, and customers cannot send any.
func TestProbesAreNobodysBusiness(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	w := firewall(t, "80")
	at := serve(t, a, w)
	forwarder := openWire(t, at[16].IngressPort)
	for a.instances["fw-1"].health.round < 4 {
		step(a, w)
		if ill := a.instances["fw-1"].health.ill; len(ill) > 0 {
			t.Fatalf("probes are lost: %v", ill)
		}
	}
	buffer := make([]byte, 2048)
	for end := time.Now().Add(never); time.Now().Before(end); {
		if n, _, err := unix.Recvfrom(forwarder.socket, buffer, 0); err == nil && strings.Contains(string(buffer[:n]), string(probeFrom[:4])) {
			t.Errorf("the forwarder got a probe: %x", buffer[:n])
		}
	}
	if table := conntrack(t, a.config.Prefix+"fw-1"); table != "" {
		t.Errorf("connections are tracked:\n%s", table)
	}
	forged := datagram{source: netip.AddrPortFrom(probeFlights[false].source, 9), target: netip.AddrPortFrom(probeFlights[false].target, 9), protocol: unix.IPPROTO_UDP}
	expectNothing(t, forwarder, at[16], true, forged)
}
