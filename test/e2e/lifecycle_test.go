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

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// smallLaboratory is one of two sites, quick to make.
const smallLaboratory = `apiVersion: switchboard/v1
kind: Laboratory
metadata: {name: NAME}
spec:
  globalSite: a
  api: 127.0.0.1:0
  hosts:
    - {name: host, site: a, interface: lan0, addresses: [10.0.0.2/24], gateways: [10.0.0.1]}
---
apiVersion: switchboard/v1
kind: Site
metadata: {name: a}
spec: {kind: data-centre, capacity: 100}
---
apiVersion: switchboard/v1
kind: Site
metadata: {name: b}
spec: {kind: edge-cloud, capacity: 100}
---
apiVersion: switchboard/v1
kind: Link
metadata: {name: a-b}
spec: {from: a, to: b, latencyMs: 2, bandwidthMbps: 100}
`

// smallLab is a laboratory of two sites that is not up yet, with its file. Whatever of it is up goes down when the test ends.
func smallLab(t testing.TB, name string) (l *laboratory, file string) {
	t.Helper()
	l, file, err := newSmallLab(require(t), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.must(t, "lab", "down", "--lab", l.name); checkNoTrace(t, l) })
	return l, file
}

// newSmallLab writes the file of one.
func newSmallLab(program, name string) (l *laboratory, file string, err error) {
	root, err := guarded.laboratoryRoot()
	if err != nil {
		return nil, "", err
	}
	l = &laboratory{name: fmt.Sprintf("e2e-%d-%s", os.Getpid(), name), root: root, program: program}
	file = filepath.Join(l.root, "laboratory.yaml")
	return l, file, os.WriteFile(file, []byte(strings.ReplaceAll(smallLaboratory, "NAME", l.name)), 0o644)
}

// TestLabUpMayBeInterrupted kills `lab up` after ever longer times; `lab down` then removes everything, whatever was
// there.
func TestLabUpMayBeInterrupted(t *testing.T) {
	l, file := smallLab(t, "cut")
	for _, after := range []time.Duration{5, 20, 50, 100, 200, 400, 800} {
		up := exec.Command(l.program, "lab", "up", "--state", l.root, "-f", file)
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after * time.Millisecond)
		_ = up.Process.Kill()
		_ = up.Wait()
		l.must(t, "lab", "down", "--lab", l.name)
		checkNoTrace(t, l)
	}
}

// TestLabUpRepairs: a second `lab up` brings back what is missing and leaves the rest alone.
func TestLabUpRepairs(t *testing.T) {
	l, file := smallLab(t, "fix")
	l.must(t, "lab", "up", "-f", file)
	before := l.record(t, "site-b")
	supervisor, err := os.ReadFile(filepath.Join(l.root, l.name, "supervisor.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("kill", "-9", strings.TrimSpace(string(supervisor))).Run(); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("ip", "netns", "del", l.name+".host").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	l.must(t, "lab", "up", "-f", file)
	if !hostnet.NamespaceExists(l.name + ".host") {
		t.Error("the host was not made again")
	}
	if after := l.record(t, "site-b"); after.PID != before.PID {
		t.Error("a site that worked was started anew")
	}
}

// TestLaboratoriesRunSideBySide: taking one down leaves another, whose name begins with its name, alone.
func TestLaboratoriesRunSideBySide(t *testing.T) {
	one, oneFile := smallLab(t, "one")
	more, moreFile := smallLab(t, "one-more")
	one.must(t, "lab", "up", "-f", oneFile)
	more.must(t, "lab", "up", "-f", moreFile)
	one.must(t, "lab", "down", "--lab", one.name)
	checkNoTrace(t, one)
	more.mustRun(t, "a", "ping", "-c", "1", "-W", "10", "198.18.1.2")
}

// TestUnderlayHasTheLatencyAndRateOfTheFile: between the two sites they are 2 ms and 100 Mbit/s.
func TestUnderlayHasTheLatencyAndRateOfTheFile(t *testing.T) {
	const latency, rate = 2, 100
	// TCP's share of a frame of 1 514 bytes with time stamps in it, and what else the sites have to say.
	const share = 1448.0 / 1514
	l, file := smallLab(t, "line")
	l.must(t, "lab", "up", "-f", file)
	once(t, func() error {
		if got := l.leastRoundTrip(t, "a", "198.18.1.2"); got < 2*latency || got > 2*(latency+0.3) {
			return fmt.Errorf("the shortest round trip takes %.2f ms, want %d", got, 2*latency)
		}
		return nil
	})
	// Both interfaces of a site are on one Ethernet; the bus must not come to the forwarder's.
	own := strings.Fields(l.mustRun(t, "a", "ip", "-brief", "link", "show", "control0"))[2]
	if known := l.mustRun(t, "b", "ip", "neighbour", "show", "198.18.1.1"); !strings.Contains(known, own) {
		t.Errorf("b knows a's control0, %s, as %s", own, known)
	}
	for _, ends := range [][3]string{{"a", "b", "198.18.1.2"}, {"b", "a", "198.18.1.1"}} {
		once(t, func() error {
			if got := l.transfer(t, ends[0], ends[1], ends[2]); got < 0.9*rate*share || got > rate {
				return fmt.Errorf("from %s to %s pass %.1f Mbit/s, want %.1f", ends[0], ends[1], got, rate*share)
			}
			return nil
		})
	}
}

// checkNoTrace looks for anything of a laboratory.
func checkNoTrace(t testing.TB, l *laboratory) {
	t.Helper()
	if names, err := hostnet.NamespaceNames(l.name + "."); err != nil || len(names) > 0 {
		t.Errorf("namespaces %v, %v", names, err)
	}
	if _, err := os.Stat(filepath.Join(l.root, l.name)); !os.IsNotExist(err) {
		t.Errorf("state is left: %v", err)
	}
	mark := []byte("SWITCHBOARD_LAB=" + l.name + "/")
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range environments {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it ended
		}
		for _, variable := range bytes.Split(text, []byte{0}) {
			if bytes.HasPrefix(variable, mark) {
				t.Errorf("a process is left: %s %s", filepath.Dir(path), variable)
			}
		}
	}
	// Of the small laboratory's forwarders, which are called so; DPDK would keep them there if it were not told otherwise.
	for _, pattern := range []string{"/var/run/dpdk/switchboard-[ab]-f1-*", "/dev/hugepages/switchboard-[ab]-f1-*"} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("DPDK's files are left: %v", left)
		}
	}
}
