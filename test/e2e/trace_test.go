package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestTraceSendsAPacket: a packet sent by `trace` passes a chain of four functions, three sites and a NAT, and is held at the
// egress; one that a function drops, one that no chain takes, and one that may leave are told apart.
func TestTraceSendsAPacket(t *testing.T) {
	const held, dropped, leaving, unclassified = 5371, 5372, 5373, 5374
	l := useLaboratory(t)
	allow := fmt.Sprintf("{vnf: west, options: {default: accept, rules: [{protocol: udp, destinationPorts: [%q], verdict: drop}]}}", fmt.Sprint(dropped))
	c := chainSpec{name: "probed", customer: "acme", edge: "office-lan", vnfs: []string{allow, "east", "filter", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [udp], destinationPorts: ["%d-%d"]}`, held, leaving)}
	l.activate(t, c)
	heard := listenUDP(t, l, "www", held, dropped, leaving)
	source := "10.1.0.10"
	send := func(chain string, port int, more ...string) (string, error) {
		words := append([]string{"trace", "--send", "--customer", "acme", "--from", "office-lan", "--protocol", "udp", "--source", source,
			"--destination", www, "--destination-port", fmt.Sprint(port)}, more...)
		if chain != "" {
			words = append(words, chain)
		}
		return l.switchboard(words...)
	}

	output, err := send("probed", held)
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	inOrder(t, output, "edge:acme/office-lan", "vnf:west/", "vnf:east/", "vnf:filter/", "vnf:nat/", "edge:-/internet", "reached:", "held")
	if _, err := send("", leaving, "--leave"); err != nil {
		t.Errorf("a packet that may leave: %v", err)
	}
	output, err = send("", dropped)
	if exit(err) != 1 || !strings.Contains(output, "VNF west did not give it back: instance west-1 at site edge-west") {
		t.Errorf("a packet that a firewall drops: exit %d\n%s", exit(err), output)
	}
	output, err = send("", unclassified)
	if exit(err) != 1 || !strings.Contains(output, "forwarder office/f1 dropped it: edge_unclassified") {
		t.Errorf("a packet that no chain takes: exit %d\n%s", exit(err), output)
	}
	source = "10.2.0.10"
	output, err = send("", held)
	if exit(err) != 1 || !strings.Contains(output, "forwarder office/f1 dropped it: edge_unclassified") {
		t.Errorf("a packet from an address that does not lie behind the edge: exit %d\n%s", exit(err), output)
	}
	source = "10.1.0.10"
	output, err = send("", held, "--from", "nowhere")
	if exit(err) != 1 || !strings.Contains(output, "there is no edge nowhere") {
		t.Errorf("an edge that does not exist: exit %d\n%s", exit(err), output)
	}
	select {
	case port := <-heard:
		if port != leaving {
			t.Errorf("a packet came out to port %d, only that to %d may", port, leaving)
		}
	case <-time.After(patience):
		t.Error("the packet that may leave did not come out")
	}
	select {
	case port := <-heard:
		t.Errorf("another packet came out, to port %d", port)
	case <-time.After(300 * time.Millisecond):
	}
}

// listenUDP tells of the ports where datagrams arrive on a machine.
func listenUDP(t testing.TB, l *laboratory, machine string, ports ...int) <-chan int {
	t.Helper()
	heard := make(chan int, 16)
	for _, port := range ports {
		var socket net.PacketConn
		l.inside(t, machine, func() (err error) {
			socket, err = net.ListenPacket("udp", netip.AddrPortFrom(netip.MustParseAddr(www), uint16(port)).String())
			return err
		})
		t.Cleanup(func() { socket.Close() })
		go func() {
			for buffer := make([]byte, 100); ; {
				if _, _, err := socket.ReadFrom(buffer); err != nil {
					return
				}
				heard <- port
			}
		}()
	}
	return heard
}

// inOrder fails the test unless the words stand in a text in that order.
func inOrder(t testing.TB, text string, words ...string) {
	t.Helper()
	rest := text
	for _, word := range words {
		_, after, found := strings.Cut(rest, word)
		if !found {
			t.Fatalf("%q is missing, or not behind the words before it, in\n%s", word, text)
		}
		rest = after
	}
}

// exit is the code a command ended with.
func exit(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	return 0
}
