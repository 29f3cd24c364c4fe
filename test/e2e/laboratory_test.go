package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/needs"
)

// laboratory is a running one.
type laboratory struct {
	name, root, api string
	// program is the switchboard binary.
	program string
}

// tools are what the tests call.
var tools = []string{"ip", "nft", "ping", "curl", "iperf3", "conntrack", "tshark"}

// shared is the laboratory of all tests, brought up by the first that asks.
var shared struct {
	once    sync.Once
	lab     *laboratory
	problem error
}

// guarded removes what the tests make.
var guarded *guard

func TestMain(m *testing.M) {
	if directory := os.Getenv(guardVariable); directory != "" {
		os.Exit(runGuard(directory))
	}
	var err error
	if guarded, err = startGuard(); err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		os.Exit(1)
	}
	// What measures waits must not wait itself: a session of its own, before others (sched(7), autogroups). Where that is
	// not to be had, times are those of a busy machine.
	if _, err := unix.Setsid(); err == nil {
		_ = os.WriteFile("/proc/self/autogroup", []byte("-10"), 0)
	}
	if how := os.Getenv(interruptedVariable); how != "" {
		beInterrupted(how)
	}
	code := m.Run()
	if err := guarded.end(code != 0 && os.Getenv("SWITCHBOARD_E2E_KEEP") != ""); err != nil {
		panic(fmt.Sprintf("guard: %v", err)) // no test of it could be repeated: scripts/test.sh
	}
	os.Exit(code)
}

// useLaboratory returns the shared laboratory, or skips the test where this machine cannot run one.
func useLaboratory(t testing.TB) *laboratory {
	t.Helper()
	program := require(t)
	shared.once.Do(func() { shared.lab, shared.problem = bringUp(program, fmt.Sprintf("e2e-%d", os.Getpid())) })
	if shared.problem != nil {
		t.Fatal(shared.problem)
	}
	return shared.lab
}

// require skips the test, or fails it where everything must run, unless root, tools and binaries are there. It returns
// the switchboard binary.
func require(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("left out by go test -short, not by make test: it brings up a laboratory")
	}
	needs.Root(t)
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			needs.Missing(t, tool+": run scripts/install-dependencies.sh")
		}
	}
	for _, program := range []string{"switchboard", "switchboard-forwarder", "switchboard-te", "switchboard-underlay"} {
		if _, err := os.Stat(programPath(program)); err != nil {
			needs.Missing(t, programPath(program)+": run make build")
		}
	}
	return programPath("switchboard")
}

// programPath is where a program of ours is, as an absolute path.
func programPath(program string) string {
	directory := os.Getenv("SWITCHBOARD_BIN")
	if directory == "" {
		directory = "../../bin"
	}
	directory, err := filepath.Abs(directory)
	if err != nil {
		panic(err) // there is no working directory
	}
	return filepath.Join(directory, program)
}

// trunkHosts are two on VLANs of the office's trunk, in one network.
const trunkHosts = `    - {name: trunk-host-31, site: office, interface: trunk0, vlan: 31, addresses: [10.1.5.31/24], gateways: [10.1.5.1]}
    - {name: trunk-host-32, site: office, interface: trunk0, vlan: 32, addresses: [10.1.5.32/24], gateways: [10.1.5.1]}
`

// bringUp starts the example laboratory under another name, with the tests' functions and what edits replace (old and new text in
// turns). Where that fails nothing is left.
func bringUp(program, name string, edits ...string) (l *laboratory, err error) {
	root, err := guarded.laboratoryRoot()
	if err != nil {
		return nil, err
	}
	l = &laboratory{name: name, root: root, program: program}
	example, err := os.ReadFile("../../examples/lab/four-sites.yaml")
	if err != nil {
		return nil, err
	}
	functions, err := os.ReadFile("testdata/functions.yaml")
	if err != nil {
		return nil, err
	}
	marker := filepath.Join(root, "dscp")
	if output, err := exec.Command("go", "build", "-o", marker, "../../examples/label-aware/dscp").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the label-aware function: %w: %s", err, output)
	}
	programs := fmt.Sprintf("  programs: {marker-mpls: [%[1]s], marker-nsh: [%[1]s]}\n", marker)
	replaced := append([]string{"name: demo", "name: " + name, "127.0.0.1:7470", "127.0.0.1:0", "  hosts:\n", programs + "  hosts:\n" + trunkHosts}, edits...)
	text := strings.NewReplacer(replaced...).Replace(string(example)) + string(functions)
	file := filepath.Join(root, "laboratory.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return nil, err
	}
	output, err := l.switchboard("lab", "up", "-f", file)
	if err != nil {
		_, _ = l.switchboard("lab", "down", "--lab", name)
		return nil, fmt.Errorf("lab up: %w: %s", err, output)
	}
	address, err := os.ReadFile(filepath.Join(root, name, "api"))
	if err != nil {
		return nil, err
	}
	l.api = strings.TrimSpace(string(address))
	return l, nil
}

// switchboard runs the command line against this laboratory.
func (l *laboratory) switchboard(words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if words[0] == "lab" {
		words = append([]string{"lab", words[1], "--state", l.root}, words[2:]...)
	}
	command := exec.CommandContext(ctx, l.program, words...)
	command.Env = append(os.Environ(), "SWITCHBOARD_SERVER="+l.api, "SWITCHBOARD_TOKEN_FILE="+l.tokenFile())
	var both bytes.Buffer
	command.Stdout, command.Stderr = &both, &both
	err := command.Run()
	return both.String(), err
}

func (l *laboratory) tokenFile() string { return filepath.Join(l.root, l.name, "token") }

// must runs the command line and fails the test where it fails.
func (l *laboratory) must(t testing.TB, words ...string) string {
	t.Helper()
	output, err := l.switchboard(words...)
	if err != nil {
		t.Fatalf("switchboard %s: %v\n%s", strings.Join(words, " "), err, output)
	}
	return output
}

// apply applies resources given as text.
func (l *laboratory) apply(t testing.TB, text string) {
	t.Helper()
	if output, err := l.tryApply(t, text); err != nil {
		t.Fatalf("apply: %v\n%s\n%s", err, output, text)
	}
}

// tryApply is apply for resources that may be refused.
func (l *laboratory) tryApply(t testing.TB, text string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "resources.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return l.switchboard("apply", "-f", file)
}

// inside runs a function with its sockets in the namespace of a machine.
func (l *laboratory) inside(t testing.TB, machine string, function func() error) {
	t.Helper()
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		t.Fatal(err)
	}
	defer namespace.Close()
	if err := namespace.Do(function); err != nil {
		t.Fatalf("%s: %v", machine, err)
	}
}

// run runs a program on a machine to its end; it returns what it wrote to standard output, then what to standard error.
func (l *laboratory) run(machine string, words ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, words[0], words[1:]...)
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		return "", err
	}
	defer namespace.Close()
	var output, complaint bytes.Buffer
	command.Stdout, command.Stderr = &output, &complaint
	if err := namespace.Start(command); err != nil {
		return "", err
	}
	err = command.Wait()
	return output.String() + complaint.String(), err
}

// mustRun runs a program on a machine and fails the test where it fails.
func (l *laboratory) mustRun(t testing.TB, machine string, words ...string) string {
	t.Helper()
	output, err := l.run(machine, words...)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", machine, strings.Join(words, " "), err, output)
	}
	return output
}

// eventually repeats a check until it finds nothing wrong, and fails the test with its last complaint at the deadline.
func eventually(t testing.TB, patience time.Duration, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %v", patience, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
