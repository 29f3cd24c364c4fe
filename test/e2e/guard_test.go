package e2e

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/lab"
)

// guardVariable makes the test program the guard of another run of it, and names the directory of that run. Everything that the
// run starts bears runVariable with the same name; one run may be inside another, so they are a list.
const (
	guardVariable = "SWITCHBOARD_E2E_GUARD"
	runVariable   = "SWITCHBOARD_E2E_RUN"
	runPattern    = "switchboard-e2e-"
)

// guard is a second process of the test program. It removes whatever tests have left when they end, however they end: also where
// they panic, take too long or are killed, and nothing of theirs can run any more. It learns of the end from a pipe that nobody
// writes to, and that the kernel closes.
type guard struct {
	// directory has everything that the run keeps in files; it is the run's directory for temporary files too.
	directory string
	process   *exec.Cmd
	pipe      *os.File
}

// keepLaboratories is what the guard is told where it shall leave everything as it is.
const keepLaboratories = "keep"

// startGuard starts the guard of this run. It must come before the first laboratory, and before this process leaves its session:
// the guard stays where a terminal's interrupt reaches it.
func startGuard() (*guard, error) {
	directory, err := os.MkdirTemp("", runPattern)
	if err != nil {
		return nil, err
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	g := &guard{directory: directory, pipe: write, process: exec.Command("/proc/self/exe", strconv.Itoa(os.Getpid()))}
	g.process.Env = append(os.Environ(), guardVariable+"="+directory)
	g.process.Stdin, g.process.Stdout, g.process.Stderr = read, os.Stdout, os.Stderr
	if err := g.process.Start(); err != nil {
		return nil, err
	}
	runs := filepath.SplitList(os.Getenv(runVariable))
	marks := strings.Join(append(runs, directory), string(filepath.ListSeparator))
	for name, value := range map[string]string{runVariable: marks, "TMPDIR": directory} {
		if err := os.Setenv(name, value); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// laboratoryRoot makes a directory for the state of a laboratory that the guard takes down. Its name is short: that of a socket has
// at most 107 bytes.
func (g *guard) laboratoryRoot() (string, error) {
	all := filepath.Join(g.directory, "labs")
	if err := os.MkdirAll(all, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(all, "")
}

// end has the guard remove what is there, and waits until it has.
func (g *guard) end(keep bool) error {
	if keep {
		if _, err := io.WriteString(g.pipe, keepLaboratories); err != nil {
			return err
		}
	}
	return errors.Join(g.pipe.Close(), g.process.Wait())
}

// runGuard is what the guard does until nothing is left of the run; it returns its exit code.
func runGuard(directory string) int {
	tests, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "guard:", err)
		return 2
	}
	interrupts := make(chan os.Signal, 8)
	signal.Notify(interrupts, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	over := make(chan struct{})
	go endTests(tests, interrupts, over)
	told, err := io.ReadAll(os.Stdin)
	close(over)
	if err == nil && string(told) == keepLaboratories {
		fmt.Println("laboratories kept in", directory)
		return 0
	}
	if err := removeRun(directory); err != nil {
		fmt.Fprintln(os.Stderr, "guard: something is left of the tests:", err)
		return 1
	}
	return 0
}

// endTests kills the tests at an interrupt, and where `go test` that ran them has ended without them.
func endTests(tests int, interrupts <-chan os.Signal, over <-chan struct{}) {
	process, err := unix.PidfdOpen(tests, 0)
	if err != nil {
		return // they have ended
	}
	defer unix.Close(process)
	tool := make(chan struct{})
	go func() {
		if awaitGoTool(tests) {
			close(tool)
		}
	}()
	for {
		select {
		case <-over:
			return
		case s := <-interrupts:
			if s == unix.SIGQUIT {
				continue // the tests show where they are, and end
			}
			fmt.Fprintln(os.Stderr, "guard: interrupted: removing what the tests have made")
		case <-tool:
			fmt.Fprintln(os.Stderr, "guard: `go test` has ended: removing what the tests have made")
			tool = nil
		}
		_ = unix.PidfdSendSignal(process, unix.SIGKILL, nil, 0)
	}
}

// awaitGoTool waits for the end of the go tool that runs the tests, and reports whether one did.
func awaitGoTool(tests int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tests))
	if err != nil {
		return false
	}
	_, fields, _ := strings.Cut(string(stat), ") ")
	parent, err := strconv.Atoi(strings.Fields(fields)[1])
	if err != nil {
		return false
	}
	descriptor, err := unix.PidfdOpen(parent, 0)
	if err != nil {
		return true
	}
	defer unix.Close(descriptor)
	if program, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", parent)); err != nil || filepath.Base(program) != "go" {
		return false
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, -1)
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return err == nil
		}
	}
}

// removeRun ends every process of a run, takes its laboratories down and removes its files.
func removeRun(directory string) error {
	deadline := time.Now().Add(time.Minute)
	for {
		left := processesOfRun(directory)
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", left)
		}
		for _, process := range left {
			_ = process.Kill()
			_ = process.Release()
		}
		time.Sleep(10 * time.Millisecond)
	}
	roots, err := filepath.Glob(filepath.Join(directory, "labs", "*"))
	if err != nil {
		return err
	}
	inside, err := filepath.Glob(filepath.Join(directory, runPattern+"*", "labs", "*"))
	if err != nil {
		return err
	}
	quiet := lab.NewProgress(func(string) {})
	for _, root := range append(roots, inside...) {
		names, err := lab.Names(root)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := lab.Down(root, name, quiet); err != nil {
				return fmt.Errorf("laboratory %s: %w", name, err)
			}
		}
	}
	return os.RemoveAll(directory)
}

// processesOfRun finds everything that bears a run's mark. Each is held by a handle, so that another of its number is never hit.
func processesOfRun(directory string) (found []*os.Process) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		number, err := strconv.Atoi(entry.Name())
		if err != nil || number == os.Getpid() {
			continue
		}
		process, err := os.FindProcess(number)
		if err != nil {
			continue
		}
		if bearsMark(number, directory) && process.Signal(syscall.Signal(0)) == nil {
			found = append(found, process)
		} else {
			_ = process.Release()
		}
	}
	return found
}

// bearsMark tells a process of a run. A process that nobody has waited for has no environment any more.
func bearsMark(process int, directory string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", process))
	if err != nil {
		return false
	}
	for variable := range strings.SplitSeq(string(environment), "\x00") {
		if marks, found := strings.CutPrefix(variable, runVariable+"="); found && slices.Contains(filepath.SplitList(marks), directory) {
			return true
		}
	}
	return false
}
