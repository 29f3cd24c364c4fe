package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// interruptedVariable makes a run of the test program one that will not come to its end: it brings a laboratory up, tells where it is,
// and waits, or panics; "early" waits for nothing.
const interruptedVariable = "SWITCHBOARD_E2E_INTERRUPTED"

// beInterrupted is what such a run does instead of tests.
func beInterrupted(how string) {
	l, file, err := newSmallLab(programPath("switchboard"), "gone")
	if err != nil {
		panic(err)
	}
	said := fmt.Sprintln("laboratory", os.Getpid(), l.name, l.root)
	if how == "early" {
		fmt.Print(said)
	}
	if output, err := l.switchboard("lab", "up", "-f", file); err != nil {
		panic(fmt.Sprint(err, output))
	}
	if how != "early" {
		fmt.Print(said)
	}
	if how == "panic" {
		panic("as a test that takes too long")
	}
	time.Sleep(2 * time.Minute)
	panic("nobody interrupts it")
}

// TestNothingIsLeftOfInterruptedTests: however a run of tests ends, no namespace, no process and no file of its laboratory is left.
func TestNothingIsLeftOfInterruptedTests(t *testing.T) {
	require(t)
	for _, one := range []struct {
		name, how string
		// end ends the run: group is that of the tool which runs the tests, as a terminal's foreground job; tests is their process.
		end func(group, tests int) error
	}{
		{"an interrupt at the terminal", "wait", func(group, _ int) error { return syscall.Kill(-group, syscall.SIGINT) }},
		{"the tests are interrupted", "wait", func(_, tests int) error { return syscall.Kill(tests, syscall.SIGINT) }},
		{"the tests are asked to end", "wait", func(_, tests int) error { return syscall.Kill(tests, syscall.SIGTERM) }},
		{"the tests are killed", "wait", func(_, tests int) error { return syscall.Kill(tests, syscall.SIGKILL) }},
		{"the tests are killed early", "early", func(_, tests int) error {
			time.Sleep(100 * time.Millisecond) // anywhere in `lab up`
			return syscall.Kill(tests, syscall.SIGKILL)
		}},
		{"go test is killed", "wait", func(group, _ int) error { return syscall.Kill(group, syscall.SIGKILL) }},
		{"a test panics", "panic", func(int, int) error { return nil }},
	} {
		t.Run(one.name, func(t *testing.T) {
			said, err := newInterrupted(t, one.how)
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(said.output)
			var tests int
			l := &laboratory{}
			for l.root == "" && lines.Scan() {
				_, _ = fmt.Sscanf(lines.Text(), "laboratory %d %s %s", &tests, &l.name, &l.root)
			}
			if l.root == "" {
				t.Fatal("it tells of no laboratory")
			}
			if err := one.end(said.command.Process.Pid, tests); err != nil {
				t.Fatal(err)
			}
			// The guard holds the output open until it has done its work.
			var rest bytes.Buffer
			if _, err := rest.ReadFrom(said.output); err != nil {
				t.Fatalf("the guard does not end: %v", err)
			}
			_ = said.command.Wait()
			checkNoTrace(t, l)
			directory := filepath.Dir(filepath.Dir(l.root))
			if _, err := os.Stat(directory); !os.IsNotExist(err) {
				t.Errorf("%s is left: %v\n%s", directory, err, &rest)
			}
			if left := processesOfRun(directory); len(left) > 0 {
				t.Errorf("%d processes are left", len(left))
			}
		})
	}
}

// interrupted is a run of tests that will be.
type interrupted struct {
	command *exec.Cmd
	output  *os.File
}

// newInterrupted starts one as `go test` does in a terminal: below a program of that name, in its process group.
func newInterrupted(t testing.TB, how string) (interrupted, error) {
	t.Helper()
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		return interrupted{}, err
	}
	tool := filepath.Join(t.TempDir(), "go")
	if err := os.WriteFile(tool, shell, 0o755); err != nil {
		return interrupted{}, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return interrupted{}, err
	}
	defer write.Close()
	t.Cleanup(func() { read.Close() })
	if err := read.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		return interrupted{}, err
	}
	tests, err := os.Executable()
	if err != nil {
		return interrupted{}, err
	}
	command := exec.Command(tool, "-c", tests+"; exit $?")
	command.Env = append(os.Environ(), interruptedVariable+"="+how)
	command.Stdout, command.Stderr = write, write
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return interrupted{command, read}, command.Start()
}
