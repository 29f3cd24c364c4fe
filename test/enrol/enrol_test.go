// Package enrol adds a site on another machine as an operator does: two network namespaces, an authority, a token, two
// site processes, and in the end a site whose certificate counts no more.
package enrol

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/needs"

	// The program under test is made of these: a cached result does not outlive a change of them.
	_ "github.com/switchboard-project/switchboard/internal/bus"
	_ "github.com/switchboard-project/switchboard/internal/site"
)

func TestMain(m *testing.M) { os.Exit(needs.OwnNamespaces(m.Run)) }

// machine is a network namespace with a directory of its own.
type machine struct {
	t                  *testing.T
	program, directory string
	namespace          *hostnet.Namespace
}

// output gathers what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds to the text.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) contains(words string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Contains(o.text.String(), words)
}

// twoMachines are joined by a link: 192.0.2.1 and 192.0.2.2.
func twoMachines(t *testing.T) (a, b *machine) {
	t.Helper()
	needs.Root(t)
	program := filepath.Join(t.TempDir(), "switchboard")
	if text, err := exec.Command("go", "build", "-o", program, "../../cmd/switchboard").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, text)
	}
	var machines []*machine
	var ends []hostnet.Interface
	for _, name := range []string{"a", "b"} {
		full := fmt.Sprintf("sben-%d-%s", os.Getpid(), name)
		namespace, err := hostnet.EnsureNamespace(full)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			namespace.Close()
			if err := hostnet.DeleteNamespace(full); err != nil {
				t.Error(err)
			}
		})
		if err := namespace.SetUp("lo"); err != nil {
			t.Fatal(err)
		}
		machines = append(machines, &machine{t, program, t.TempDir(), namespace})
		address := netip.MustParsePrefix(fmt.Sprintf("192.0.2.%d/24", len(machines)))
		ends = append(ends, hostnet.Interface{Namespace: namespace, Name: "wan0", Addresses: []netip.Prefix{address}, Kernel: true, Offloads: true})
	}
	if err := hostnet.EnsureVeth(ends[0], ends[1]); err != nil {
		t.Fatal(err)
	}
	return machines[0], machines[1]
}

func (m *machine) path(name string) string { return filepath.Join(m.directory, name) }

// run runs a command to its end; an error says what it wrote.
func (m *machine) run(words ...string) (string, error) {
	text, err := m.namespace.Run(exec.Command(m.program, words...))
	return string(text), err
}

// fails reports whether an error says why.
func fails(err error, why string) bool { return err != nil && strings.Contains(err.Error(), why) }

func (m *machine) must(words ...string) string {
	m.t.Helper()
	text, err := m.run(words...)
	if err != nil {
		m.t.Fatalf("switchboard %s: %v\n%s", strings.Join(words, " "), err, text)
	}
	return text
}

// start starts a command that goes on, and waits until it is ready.
func (m *machine) start(words ...string) (log *output, stop func()) {
	m.t.Helper()
	ready := m.path("ready")
	_ = os.Remove(ready)
	log = &output{}
	command := exec.Command(m.program, append(words, "--ready-file", ready)...)
	command.Stdout, command.Stderr = log, log
	if err := m.namespace.Start(command); err != nil {
		m.t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		_ = command.Process.Signal(syscall.SIGTERM)
		_ = command.Wait()
	})
	m.t.Cleanup(stop)
	m.eventually("switchboard "+words[0]+" is ready", log, func() bool { _, err := os.Stat(ready); return err == nil })
	return log, stop
}

func (m *machine) eventually(what string, log *output, holds func() bool) {
	m.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("not within a minute: %s\n%s", what, log.text.String())
		}
	}
}

// configure writes a site's file. more is added to its bus section.
func (m *machine) configure(site, more string) string {
	m.t.Helper()
	text := fmt.Sprintf(`site: %s
globalSite: core
bus: {store: %s, identity: %s, %s}
forwarders: [{name: f1, tunnelAddress: 198.51.100.1/24, interface: tunnel0}]
`, site, m.path("store"), m.path("identity"), more)
	file := m.path("site.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	return file
}

func TestSiteIsAddedFromAnotherMachine(t *testing.T) {
	core, edge := twoMachines(t)
	authority := core.path("authority")
	core.must("enrol", "core", "--identity", core.path("identity"), "--authority", authority)
	_, stopAuthority := core.start("authority", "serve", "--directory", authority, "--listen", "192.0.2.1:7401", "--certificate-life", "720h")
	token := filepath.Join(edge.directory, "token") // carried over by hand
	if err := os.WriteFile(token, []byte(core.must("authority", "token", "edge", "--directory", authority)), 0o600); err != nil {
		t.Fatal(err)
	}
	enrol := func(site string) (string, error) {
		return edge.run("enrol", site, "--identity", edge.path("identity"), "--from", "192.0.2.1:7401", "--token-file", token)
	}
	if text, err := enrol("core"); !fails(err, `it is for site "edge"`) {
		t.Errorf("a token for another site: %v\n%s", err, text)
	}
	text, err := enrol("edge")
	if until := time.Now().Add(720 * time.Hour).UTC().Format(time.DateOnly); err != nil || !strings.Contains(text, "enrolled until "+until) {
		t.Fatalf("enrol: %v\n%s, want until %s", err, text, until)
	}
	if text, err := enrol("edge"); !fails(err, "unknown or was used") {
		t.Errorf("a token that was used: %v\n%s", err, text)
	}
	stopAuthority() // sites need it no more

	listen := "listen: 192.0.2.1:7400"
	coreLog, stopCore := core.start("site", "--config", core.configure("core", listen))
	edgeLog, _ := edge.start("site", "--config", edge.configure("edge", `peers: [{site: core, address: "192.0.2.1:7400"}]`))
	core.eventually("both ends say that the link is up", coreLog, func() bool {
		return coreLog.contains("msg=link site=core peer=edge up=true") && edgeLog.contains("msg=link site=edge peer=core up=true")
	})

	stopCore()
	coreLog, _ = core.start("site", "--config", core.configure("core", listen+", refuse: [edge]"))
	core.eventually("the site that is refused", coreLog, func() bool { return coreLog.contains("site edge is in bus.refuse") })
	if coreLog.contains("peer=edge up=true") {
		t.Error("a refused site has a link")
	}
}
