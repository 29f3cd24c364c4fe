package e2e

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// TestLabelAwareFunctionsAreVisitedWithTheirContext: a program of the operator, one instance with one interface for every chain, marks each
// chain's packets as its option asks, by the labels or by the network service header before them; in both directions, behind another
// function. One that is killed is missed, and started again; one that hangs is missed.
func TestLabelAwareFunctionsAreVisitedWithTheirContext(t *testing.T) {
	l := useLaboratory(t)
	for index, context := range []string{"mpls", "nsh"} {
		t.Run(context, func(t *testing.T) {
			marker := "marker-" + context
			clients, servers := l.listen(t, "acme-host"), l.listen(t, "www")
			var chains []chainSpec
			for number, dscp := range []uint8{10, 46} {
				port := uint16(5420 + 2*index + number)
				echoServer(t, l, "www", port)
				c := chainSpec{name: fmt.Sprintf("%s-%d", marker, dscp), customer: "acme", edge: "office-lan",
					vnfs:  []string{"west", fmt.Sprintf("{vnf: %s, options: {dscp: %d}}", marker, dscp)},
					match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
				l.activate(t, c)
				chains = append(chains, c)
				server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
				f := startFlows(t, l, "acme-host", server, 5)
				eventually(t, activation, func() error { return f.goOn(0, 10) })
				l.checkTrace(t, c, []string{"west", marker})
				if err := f.end(); err != nil {
					t.Error(err)
				}
				eventually(t, patience, func() error { // what was heard is read a little later
					for side, seen := range map[string]map[uint8]int{"server": servers.marks(port, false), "client": clients.marks(port, true)} {
						if seen[dscp] < 50 || len(seen) != 1 {
							return fmt.Errorf("chain %s: the %s got packets with code points %v, want %d only", c.name, side, seen, dscp)
						}
					}
					return nil
				})
			}
			reason := l.reasonOf(t, marker+"-1")
			sendSignal(l.programsOf(t, marker+"-1"), syscall.SIGKILL)
			if why := reason(); !strings.Contains(why, "dscp ended: ") {
				t.Errorf("the reason is %q", why)
			}
			eventually(t, activation, func() error { return l.settled(t, chains[0]) })
			reason = l.reasonOf(t, marker+"-1")
			hangs := l.programsOf(t, marker+"-1")
			sendSignal(hangs, syscall.SIGSTOP)
			if why := reason(); !strings.Contains(why, "does not give them back") {
				t.Errorf("the reason is %q", why)
			}
			sendSignal(hangs, syscall.SIGCONT)
			eventually(t, activation, func() error { return l.settled(t, chains[0]) })
			l.openAndClose(t, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), uint16(5420+2*index)), 5)
		})
	}
}

// programsOf are the processes that an instance runs.
func (l *laboratory) programsOf(t testing.TB, machine string) (found []int) {
	t.Helper()
	output, err := exec.Command("ip", "netns", "pids", l.name+"."+machine).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	for _, word := range strings.Fields(string(output)) {
		// A thread of the tests may be there for a moment.
		if pid, err := strconv.Atoi(word); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	if len(found) == 0 {
		t.Fatalf("%s runs nothing", machine)
	}
	return found
}

// sendSignal sends processes a signal; one that has ended needs none.
func sendSignal(processes []int, s syscall.Signal) {
	for _, pid := range processes {
		_ = syscall.Kill(pid, s)
	}
}

// marks counts the differentiated-services code points of TCP packets over IPv4 that were heard, to a port or from it.
func (h *listener) marks(port uint16, from bool) map[uint8]int {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	const ethernet, ipv4 = 14, 20
	counts, begin := map[uint8]int{}, 0
	for _, end := range h.ends {
		frame := h.frames.Bytes()[begin:end]
		begin = end
		if len(frame) < ethernet+ipv4+4 || binary.BigEndian.Uint16(frame[12:]) != 0x0800 || frame[ethernet+9] != syscall.IPPROTO_TCP {
			continue
		}
		at := ethernet + ipv4
		if !from {
			at += 2
		}
		if binary.BigEndian.Uint16(frame[at:]) == port {
			counts[frame[ethernet+1]>>2]++
		}
	}
	return maps.Clone(counts)
}

// TestLabelAwareInstancesDrain: a deployment whose capacity is taken away keeps its program until its connections have ended; then
// neither program nor namespace is left.
func TestLabelAwareInstancesDrain(t *testing.T) {
	const port = 5430
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	text := func(instances int) string {
		return fmt.Sprintf("apiVersion: switchboard/v1\nkind: VnfDeployment\nmetadata: {name: marker-mpls}\n"+
			"spec: {vnf: marker-mpls, site: edge-west, capacity: 1000, instances: %d}\n", instances)
	}
	l.apply(t, text(2))
	t.Cleanup(func() { l.apply(t, text(1)) })
	c := chainSpec{name: "marked", customer: "acme", edge: "office-lan", vnfs: []string{"{vnf: marker-mpls, options: {dscp: 12}}"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	eventually(t, activation, func() error {
		if found := len(l.instances(t, "marker-mpls")); found != 2 {
			return fmt.Errorf("%d healthy instances", found)
		}
		return l.settled(t, c)
	})
	f := startFlows(t, l, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), port), 20)
	eventually(t, activation, func() error { return f.goOn(0, 5) })
	f.longest()
	l.apply(t, text(1))
	time.Sleep(time.Second)
	f.checkStall(t, l)
	before := f.answers()
	eventually(t, activation, func() error { return f.goOn(before, 5) })
	if !hostnet.NamespaceExists(l.name + ".marker-mpls-2") {
		t.Error("the instance is gone and had connections")
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}
	eventually(t, 3*time.Minute, func() error {
		if hostnet.NamespaceExists(l.name + ".marker-mpls-2") {
			return fmt.Errorf("the instance that drained is still there")
		}
		return nil
	})
}
