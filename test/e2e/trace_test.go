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

	// A busy machine may have no instance for a moment, or lose a packet.
	says := func(chain string, port, code int, words []string, more ...string) {
		t.Helper()
		once(t, func() error {
			output, err := send(chain, port, more...)
			if exit(err) != code {
				return fmt.Errorf("a packet from %s to port %d: exit %d, want %d\n%s", source, port, exit(err), code, output)
			}
			return wordsInOrder(output, words...)
		})
	}
	says("probed", held, 0, []string{"edge:acme/office-lan", "vnf:west/", "vnf:east/", "vnf:filter/", "vnf:nat/", "edge:-/internet", "reached:", "held"})
	says("", leaving, 0, []string{"reached:"}, "--leave")
	says("", dropped, 1, []string{"VNF west did not give it back: instance west-1 at site edge-west"})
	says("", unclassified, 1, []string{"forwarder office/f1 dropped it: edge_unclassified"})
	source = "10.2.0.10" // it does not lie behind the edge
	says("", held, 1, []string{"forwarder office/f1 dropped it: edge_unclassified"})
	source = "10.1.0.10"
	says("", held, 1, []string{"there is no edge nowhere"}, "--from", "nowhere")
	select {
	case port := <-heard:
		if port != leaving {
			t.Errorf("a packet came out to port %d, only that to %d may", port, leaving)
		}
	case <-time.After(patience):
		t.Error("the packet that may leave did not come out")
	}
	for quiet := time.After(300 * time.Millisecond); ; {
		select {
		case port := <-heard:
			if port != leaving {
				t.Errorf("another packet came out, to port %d", port)
			}
			continue
		case <-quiet:
		}
		break
	}
}

// TestATraceThatAnotherEndsSaysSo: of two traces at once the first ends, and its user is told.
func TestATraceThatAnotherEndsSaysSo(t *testing.T) {
	l := useLaboratory(t)
	l.activate(t, chainSpec{name: "traced", customer: "acme", edge: "office-lan", vnfs: []string{"west"},
		match: `{destinationPrefixes: [198.51.100.0/24], protocols: [udp], destinationPorts: ["5381"]}`})
	first := make(chan string, 1)
	go func() {
		output, _ := l.switchboard("trace", "traced", "--customer", "acme", "--duration", "60s")
		first <- output
	}()
	for limit := time.After(50 * time.Second); ; {
		l.must(t, "trace", "traced", "--customer", "acme", "--duration", "200ms")
		select {
		case output := <-first:
			if !strings.Contains(output, "another trace began at forwarder office/f1 and ended this one") {
				t.Errorf("the first trace does not say that it was ended:\n%s", output)
			}
			return
		case <-limit:
			t.Fatal("the second trace does not end the first")
		case <-time.After(100 * time.Millisecond):
		}
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
	if err := wordsInOrder(text, words...); err != nil {
		t.Fatal(err)
	}
}

// wordsInOrder says which word does not stand in a text behind those before it.
func wordsInOrder(text string, words ...string) error {
	rest := text
	for _, word := range words {
		_, after, found := strings.Cut(rest, word)
		if !found {
			return fmt.Errorf("%q is missing, or not behind the words before it, in\n%s", word, text)
		}
		rest = after
	}
	return nil
}

// exit is the code a command ended with.
func exit(err error) int {
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode()
	}
	return 0
}
