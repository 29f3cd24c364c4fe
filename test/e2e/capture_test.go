package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCaptureOfSomePackets: `switchboard capture` writes the packets that match, at every port and in tunnels, and no
// others; tshark reads them; an interrupt ends it with a whole file.
func TestCaptureOfSomePackets(t *testing.T) {
	l := useLaboratory(t)
	c := chainSpec{name: "captured", customer: "acme", edge: "office-lan", match: "{destinationPrefixes: [198.51.100.80/32], protocols: [icmp]}", vnfs: []string{"west"}}
	l.activate(t, c)
	l.mustRun(t, "acme-host", "ping", "-c", "1", "-W", "5", www)
	if said, err := l.switchboard("capture", "office", "--port", "nope"); err == nil || !strings.Contains(said, "--port") || !strings.Contains(said, "wan") {
		t.Errorf("a capture at a port that there is not: %v: %s", err, said)
	}
	file := filepath.Join(t.TempDir(), "some.pcapng")
	var said bytes.Buffer
	command := exec.Command(l.program, "capture", "office",
		"--protocol", "icmp", "--destination", www+"/32", "--snap-length", "160", "--output", file, "--duration", "2m")
	command.Env = append(os.Environ(), "SWITCHBOARD_SERVER="+l.api, "SWITCHBOARD_TOKEN_FILE="+l.tokenFile())
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	defer command.Process.Kill()
	// The file is there once the forwarder captures; a header is written at once.
	longer := func(bytes int64) func() error {
		return func() error {
			info, err := os.Stat(file)
			select {
			case ended := <-ended:
				t.Fatalf("the capture ended with %v: %s", ended, said.String())
			default:
			}
			if err == nil && info.Size() < bytes {
				err = fmt.Errorf("the capture has %d bytes, not %d yet", info.Size(), bytes)
			}
			return err
		}
	}
	eventually(t, 30*time.Second, longer(1))
	l.mustRun(t, "acme-host", "ping", "-c", "5", "-i", "0.2", "-W", "5", www)
	l.mustRun(t, "acme-host", "ping", "-c", "2", "-i", "0.2", "-W", "5", "10.1.0.1") // its gateway: no packet to www
	eventually(t, 30*time.Second, longer(28+2*44+10*144+10*200))                     // ten packets at two ports, without and with a tunnel
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("the capture ended with %v: %s", err, said.String())
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the capture does not end at an interrupt")
	}
	output, err := exec.Command("tshark", "-n", "-r", file, "-T", "fields", "-E", "separator=/s", "-E", "occurrence=l",
		"-e", "frame.interface_name", "-e", "icmp.type", "-e", "ip.dst").Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(output)), "\n") {
		words := strings.Fields(line)
		if len(words) != 3 {
			t.Fatalf("tshark reads %q in\n%s", line, output)
		}
		seen[strings.Join(words[1:], " ")]++
	}
	if len(seen) != 2 || seen["8 "+www] != 10 || seen["0 10.1.0.10"] != 10 {
		t.Errorf("captured: %v, want 10 echo requests and 10 replies, each at two ports; %s", seen, said.String())
	}
}
