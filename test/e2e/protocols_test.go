package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// pathMTU is the largest inner packet between the laboratory's sites, in bytes: 1500 less the tunnel's outer headers.
const pathMTU = 1500 - 20 - 8 - 8 - 14 - 8

// TestProtocols: what customers send passes, in both families and in every size.
func TestProtocols(t *testing.T) {
	l := useLaboratory(t)
	l.activate(t, chainSpec{name: "all-ipv4", customer: "acme", edge: "office-lan", match: "{destinationPrefixes: [0.0.0.0/0]}", vnfs: []string{"west", "nat"}})
	l.activate(t, chainSpec{name: "all-ipv6", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: ["::/0"]}`, vnfs: []string{"west"}})
	l.activate(t, chainSpec{name: "all", customer: "globex", edge: "office-vlan", match: "{destinationPrefixes: [0.0.0.0/0]}", vnfs: []string{"west", "nat"}})

	passes := []struct {
		name, machine string
		words         []string
		want          string
	}{
		{"ICMP", "acme-host", []string{"ping", "-c", "3", "-i", "0.2", "-W", "10", www}, " 0% packet loss"},
		{"ICMPv6", "acme-host", []string{"ping", "-c", "3", "-i", "0.2", "-W", "10", wwwIPv6}, " 0% packet loss"},
		{"HTTP", "acme-host", []string{"curl", "-sS", "-m", "30", "http://" + www + "/"}, "hello 203.0.113."},
		{"HTTP over IPv6", "acme-host", []string{"curl", "-sS", "-m", "30", "http://[" + wwwIPv6 + "]/"}, "hello [2001:db8:a::10]"},
		{"VLAN", "globex-host", []string{"curl", "-sS", "-m", "30", "http://" + www + "/"}, "hello 203.0.113."},
		{"fragments", "acme-host", []string{"ping", "-c", "3", "-i", "0.2", "-W", "10", "-M", "dont", "-s", "4000", www}, " 0% packet loss"},
		{"fragments over IPv6", "acme-host", []string{"ping", "-c", "3", "-i", "0.2", "-W", "10", "-M", "dont", "-s", "4000", wwwIPv6}, " 0% packet loss"},
		{"1500 bytes", "acme-host", []string{"ping", "-c", "3", "-i", "0.2", "-W", "10", "-M", "dont", "-s", "1472", www}, " 0% packet loss"},
		{"a large transfer", "acme-host", []string{"curl", "-sS", "-m", "50", "-o", "/dev/null", "-w", "%{size_download}", "http://" + www + "/bytes/20000000"}, "20000000"},
		{"a large transfer over IPv6", "acme-host", []string{"curl", "-sS", "-m", "50", "-o", "/dev/null", "-w", "%{size_download}", "http://[" + wwwIPv6 + "]/bytes/20000000"}, "20000000"},
	}
	// The first large IPv6 packet of either end is answered with the size that fits.
	_, _ = l.run("acme-host", "ping", "-c", "2", "-W", "2", "-M", "dont", "-s", "4000", wwwIPv6)
	for _, one := range passes {
		t.Run(one.name, func(t *testing.T) {
			output, err := l.run(one.machine, one.words...)
			if err != nil || !strings.Contains(output, one.want) {
				t.Errorf("no %q: %v\n%s", one.want, err, output)
			}
		})
	}
	t.Run("path MTU discovery", func(t *testing.T) { checkPathMTU(t, l) })
	t.Run("UDP", func(t *testing.T) { checkUDP(t, l) })
}

// sizeTold is what ping says of the largest packet: of an ICMP message, or of what its host has learned.
var sizeTold = regexp.MustCompile(`mtu ?[=:]? ?(\d+)`)

// checkPathMTU: a packet that must not be fragmented and does not fit is answered with the largest size that does; that size
// passes, and one byte more does not.
func checkPathMTU(t testing.TB, l *laboratory) {
	for address, headers := range map[string]int{www: 20 + 8, wwwIPv6: 40 + 8} {
		ping := func(size int) (string, error) {
			return l.run("acme-host", "ping", "-c", "1", "-W", "5", "-M", "do", "-s", strconv.Itoa(size-headers), address)
		}
		size := 0
		once(t, func() error {
			output, err := ping(1500)
			told := sizeTold.FindStringSubmatch(output)
			if err == nil || told == nil {
				return fmt.Errorf("%s: %v\n%s", address, err, output)
			}
			size, _ = strconv.Atoi(told[1])
			return nil
		})
		if size != pathMTU {
			t.Errorf("%s: the largest packet is said to have %d bytes, want %d", address, size, pathMTU)
		}
		once(t, func() error {
			if output, err := ping(size); err != nil {
				return fmt.Errorf("%s: %d bytes do not pass: %w\n%s", address, size, err, output)
			}
			return nil
		})
		if _, err := ping(size + 1); err == nil {
			t.Errorf("%s: %d bytes pass", address, size+1)
		}
	}
}

func checkUDP(t testing.TB, l *laboratory) {
	var server net.PacketConn
	l.inside(t, "www", func() (err error) {
		server, err = net.ListenPacket("udp", ":5399")
		return err
	})
	defer server.Close()
	go func() {
		datagram := make([]byte, 8192)
		for {
			length, from, err := server.ReadFrom(datagram)
			if err != nil {
				return
			}
			_, _ = server.WriteTo(datagram[:length], from)
		}
	}()
	var client net.Conn
	l.inside(t, "acme-host", func() (err error) {
		client, err = net.Dial("udp", www+":5399")
		return err
	})
	defer client.Close()
	for number := range 20 {
		want := fmt.Sprintf("datagram %d", number)
		if number%2 == 1 { // in three fragments
			want += strings.Repeat("-", 4000)
		}
		once(t, func() error { // a busy machine may lose one
			_ = client.SetDeadline(time.Now().Add(5 * time.Second))
			if _, err := io.WriteString(client, want); err != nil {
				return err
			}
			answer := make([]byte, 8192)
			length, err := client.Read(answer)
			if err != nil || string(answer[:length]) != want {
				return fmt.Errorf("datagram %d of %d bytes: answer of %d, %v", number, len(want), length, err)
			}
			return nil
		})
	}
}

// TestCaptureDecodes: tshark reads a capture of the wide area as VXLAN, the labels that the routes name, and the inner
// packet.
func TestCaptureDecodes(t *testing.T) {
	l := useLaboratory(t)
	c := chainSpec{name: "capture", customer: "acme", edge: "office-lan", match: "{destinationPrefixes: [198.51.100.80/32], protocols: [icmp]}", vnfs: []string{"west"}}
	l.activate(t, c)
	route := l.routes(t, c)[0]
	file := filepath.Join(t.TempDir(), "wan.pcap")
	capture := l.capture(t, "office", file)
	forward := fmt.Sprintf("8 %d,%d %s", route.ChainLabel, route.EgressLabel, www)
	reverse := fmt.Sprintf("0 %d,%d 10.1.0.10", route.ChainLabel+1, route.EgressLabel)
	l.mustRun(t, "acme-host", "ping", "-c", "5", "-i", "0.2", "-W", "10", www)
	eventually(t, patience, func() error { // the last packets are written a little later
		if seen := decoded(t, file); seen[forward] < 5 || seen[reverse] < 5 {
			return fmt.Errorf("want 5 packets that are %q and %q; all: %v", forward, reverse, seen)
		}
		return nil
	})
	capture()
	if seen := decoded(t, file); seen[forward] != 5 || seen[reverse] != 5 {
		t.Errorf("want 5 packets that are %q and %q; all: %v", forward, reverse, seen)
	}
}

// decoded counts what tshark reads of a file that may still grow: type, labels and destination of each packet of ICMP.
func decoded(t testing.TB, file string) map[string]int {
	t.Helper()
	output, err := exec.Command("tshark", "-r", file, "-Y", "vxlan && icmp", "-T", "fields", "-E", "separator=/s",
		"-e", "icmp.type", "-e", "udp.dstport", "-e", "mpls.label", "-e", "ip.dst").Output()
	var ended *exec.ExitError
	if err != nil && !(errors.As(err, &ended) && strings.Contains(string(ended.Stderr), "cut short")) {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for line := range strings.Lines(string(output)) {
		words := strings.Fields(line)
		if len(words) < 4 || words[1] != "4789" {
			t.Fatalf("tshark decodes %q", line)
		}
		seen[words[0]+" "+words[2]+" "+words[3][strings.LastIndex(words[3], ",")+1:]]++
	}
	return seen
}

// capture writes a site's wide-area side to a file until the returned function is called.
func (l *laboratory) capture(t testing.TB, site, file string) func() {
	t.Helper()
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	command := exec.CommandContext(ctx, l.program, "lab", "pcap", "--state", l.root, site)
	command.Stdout = out
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, patience, func() error { // the file's header is written when everything is listened to
		if written, err := out.Stat(); err != nil || written.Size() == 0 {
			return fmt.Errorf("the capture has not begun: %v", err)
		}
		return nil
	})
	return func() {
		cancel()
		_ = command.Wait()
		out.Close()
	}
}

// TestLinksAreAsConfigured: round trips between sites are within 10 % or 0.3 ms of the file. A busy machine adds to a
// round trip and never takes from it, so of several measurements the least counts; none may be too short.
func TestLinksAreAsConfigured(t *testing.T) {
	const links, attempts = 6, 10 // links of examples/lab/four-sites.yaml
	l := useLaboratory(t)
	least := map[string]float64{}
	var wrong []string
	for range attempts {
		wrong = nil
		compared := 0
		for _, line := range strings.Split(l.must(t, "lab", "status"), "\n") {
			words := strings.Fields(line)
			// "office - dc   18.00 ms   18.31 ms   18.11 ms   1000 Mbit/s": median, least
			if len(words) != 11 || words[1] != "-" {
				continue
			}
			compared++
			link := words[0] + " to " + words[2]
			want, err1 := strconv.ParseFloat(words[3], 64)
			got, err2 := strconv.ParseFloat(words[7], 64)
			if err1 != nil || err2 != nil || got < want {
				t.Fatalf("%s: configured %s ms, measured %s ms", link, words[3], words[7])
			}
			if before, known := least[link]; known {
				got = min(got, before)
			}
			least[link] = got
			if got-want > max(0.3, want/10) {
				wrong = append(wrong, fmt.Sprintf("%s: configured %.2f ms, measured %.2f ms at least", link, want, got))
			}
		}
		if compared != links {
			t.Fatalf("%d links are shown, want %d", compared, links)
		}
		if len(wrong) == 0 {
			return
		}
	}
	t.Error(strings.Join(wrong, "\n"))
}
