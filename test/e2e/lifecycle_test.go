package e2e

import (
	"bytes"
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

func smallLaboratoryFile(t *testing.T, root, name string) string {
	t.Helper()
	file := filepath.Join(root, name+".yaml")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(smallLaboratory, "NAME", name)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestLabUpMayBeInterrupted kills `lab up` after ever longer times; `lab down` then removes everything, whatever was
// there.
func TestLabUpMayBeInterrupted(t *testing.T) {
	program := require(t)
	root := t.TempDir()
	file := smallLaboratoryFile(t, root, "e2e-cut")
	l := &laboratory{name: "e2e-cut", root: root, program: program}
	for _, after := range []time.Duration{5, 20, 50, 100, 200, 400, 800} {
		up := exec.Command(program, "lab", "up", "--state", root, "-f", file)
		if err := up.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(after * time.Millisecond)
		_ = up.Process.Kill()
		_ = up.Wait()
		l.must(t, "lab", "down", "--lab", "e2e-cut")
		checkNoTrace(t, l)
	}
}

// TestLabUpRepairs: a second `lab up` brings back what is missing and leaves the rest alone.
func TestLabUpRepairs(t *testing.T) {
	program := require(t)
	root := t.TempDir()
	file := smallLaboratoryFile(t, root, "e2e-fix")
	l := &laboratory{name: "e2e-fix", root: root, program: program}
	t.Cleanup(func() { l.must(t, "lab", "down", "--lab", "e2e-fix"); checkNoTrace(t, l) })
	l.must(t, "lab", "up", "-f", file)
	before := l.record(t, "site-b")
	supervisor, err := os.ReadFile(filepath.Join(root, l.name, "supervisor.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command("kill", "-9", strings.TrimSpace(string(supervisor))).Run(); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("ip", "netns", "del", "e2e-fix.host").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	l.must(t, "lab", "up", "-f", file)
	if !hostnet.NamespaceExists("e2e-fix.host") {
		t.Error("the host was not made again")
	}
	if after := l.record(t, "site-b"); after.PID != before.PID {
		t.Error("a site that worked was started anew")
	}
}

// TestLaboratoriesRunSideBySide: taking one down leaves another, whose name begins with its name, alone.
func TestLaboratoriesRunSideBySide(t *testing.T) {
	program := require(t)
	root := t.TempDir()
	labs := []*laboratory{}
	for _, name := range []string{"e2e-one", "e2e-one-more"} {
		l := &laboratory{name: name, root: root, program: program}
		t.Cleanup(func() { l.must(t, "lab", "down", "--lab", name) })
		l.must(t, "lab", "up", "-f", smallLaboratoryFile(t, root, name))
		labs = append(labs, l)
	}
	labs[0].must(t, "lab", "down", "--lab", labs[0].name)
	checkNoTrace(t, labs[0])
	labs[1].mustRun(t, "a", "ping", "-c", "1", "-W", "2", "198.18.1.2")
}

// checkNoTrace looks for anything of a laboratory.
func checkNoTrace(t *testing.T, l *laboratory) {
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
