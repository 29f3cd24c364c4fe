package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// demo is what `make demo` runs, with a laboratory of its own.
type demo struct {
	l    *laboratory
	file string
}

func newDemo(t testing.TB) *demo {
	t.Helper()
	program := require(t)
	root, err := guarded.laboratoryRoot()
	if err != nil {
		t.Fatal(err)
	}
	d := &demo{l: &laboratory{name: fmt.Sprintf("e2e-%d-demo", os.Getpid()), root: root, program: program}}
	example, err := os.ReadFile("../../examples/lab/four-sites.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d.file = filepath.Join(d.l.root, "laboratory.yaml")
	text := strings.NewReplacer("name: demo", "name: "+d.l.name, "127.0.0.1:7470", "127.0.0.1:0").Replace(string(example))
	if err := os.WriteFile(d.file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return d
}

// command is the demo's script in a process group of its own, as a shell's foreground job.
func (d *demo) command(ctx context.Context, output *bytes.Buffer, words ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "../../scripts/demo.sh", words...)
	command.Env = append(os.Environ(), "DEMO_LABORATORY="+d.file, "DEMO_STATE="+d.l.root)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	command.WaitDelay = time.Second
	return command
}

// TestDemo: `make demo` may be interrupted at any moment and ends soon, goes on when it is repeated, and shows what a newcomer is to see;
// the user guide's calls with curl work against it; `make demo-down` leaves nothing.
func TestDemo(t *testing.T) {
	const soon, whole = time.Minute, 5 * time.Minute
	d := newDemo(t)
	down := func() {
		var output bytes.Buffer
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		if err := d.command(ctx, &output, "down").Run(); err != nil {
			t.Errorf("demo-down: %v\n%s", err, &output)
		}
		checkNoTrace(t, d.l)
	}
	t.Cleanup(down)
	for _, after := range []time.Duration{100 * time.Millisecond, time.Second, 4 * time.Second, 8 * time.Second} {
		d.interrupt(t, after, soon, func(string) bool { return true })
	}
	// During the trace, which runs a connection beside it.
	d.interrupt(t, 0, whole, func(output string) bool { return strings.Contains(output, "$ switchboard trace web") })

	ctx, cancel := context.WithTimeout(context.Background(), whole)
	defer cancel()
	var output bytes.Buffer
	if err := d.command(ctx, &output).Run(); err != nil {
		t.Fatalf("%v\n%s", err, &output)
	}
	inOrder(t, output.String(), "A wide area of four sites", "edge-west", "edge-cloud", "acme", "web", "Active", "firewall@edge-west",
		"hello 203.0.113.", "hello [2001:db8:a::10]", "hop by hop", "edge:acme/office-lan", "vnf:firewall/", "vnf:nat/", "edge:-/internet",
		"What the functions and the forwarders counted", "Healthy", "round trip", "no chain", " ms ", "Mbit/s", "through the chain",
		"Try next", "inspected.yaml", "lab pcap", "switchboard top", "make demo-down")
	d.callWithCurl(t)
}

// interrupt starts the demo, and after a while, when what it has shown is ready, interrupts it as Ctrl-C does: everything in its process group.
func (d *demo) interrupt(t testing.TB, after, soon time.Duration, ready func(output string) bool) {
	t.Helper()
	shown, err := os.CreateTemp(d.l.root, "demo")
	if err != nil {
		t.Fatal(err)
	}
	defer shown.Close()
	ctx, cancel := context.WithTimeout(context.Background(), after+2*soon)
	defer cancel()
	command := d.command(ctx, nil)
	command.Stdout, command.Stderr = shown, shown
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	output := func() string { text, _ := os.ReadFile(shown.Name()); return string(text) }
	time.Sleep(after)
	for begun := time.Now(); !ready(output()) && time.Since(begun) < soon; {
		time.Sleep(20 * time.Millisecond)
	}
	_ = syscall.Kill(-command.Process.Pid, syscall.SIGINT)
	interrupted := time.Now()
	err = <-ended
	var status *exec.ExitError
	if errors.As(err, &status) && status.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
		return // the shell had not begun to read the script
	}
	if !errors.As(err, &status) || status.ExitCode() != 130 {
		t.Fatalf("interrupted after %s it ended with %v, not with 130:\n%s", after, err, output())
	}
	if took := time.Since(interrupted); took > soon {
		t.Errorf("interrupted after %s it ended only after %s:\n%s", after, took, output())
	} else {
		t.Logf("interrupted after %s it ended after %s", after, took.Round(time.Millisecond))
	}
	if !strings.Contains(output(), "interrupted") {
		t.Errorf("interrupted after %s it does not say so:\n%s", after, output())
	}
}

var curlCalls = regexp.MustCompile("(?s)## The API with curl.*?```sh\n(.*?)```")

// callWithCurl runs the calls of the user guide.
func (d *demo) callWithCurl(t testing.TB) {
	t.Helper()
	guide, err := os.ReadFile("../../docs/user-guide.md")
	if err != nil {
		t.Fatal(err)
	}
	found := curlCalls.FindSubmatch(guide)
	if found == nil {
		t.Fatal("the user guide has no calls with curl")
	}
	address, err := os.ReadFile(filepath.Join(d.l.root, d.l.name, "api"))
	if err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("~/.config/switchboard/token", filepath.Join(d.l.root, d.l.name, "token"),
		"http://127.0.0.1:7470", strings.TrimSpace(string(address)),
		"/run/switchboard/api.sock", filepath.Join(d.l.root, d.l.name, "api.sock")).Replace(string(found[1]))
	output, err := exec.Command("bash", "-ec", "set -o pipefail\n"+script).CombinedOutput()
	if err != nil || strings.Contains(string(output), `"code":`) {
		t.Errorf("%v\n%s\nanswers\n%s", err, script, output)
	}
	for _, word := range []string{`"web"`, "65536", "office-lan", "forwardMbps", "edge-west"} {
		if !strings.Contains(string(output), word) {
			t.Errorf("no %s in\n%s", word, output)
		}
	}
}
