package lab

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// supervised prepares a laboratory's state with one process and no network.
func supervised(t *testing.T, one process) (state, string) {
	t.Helper()
	root := t.TempDir()
	s := stateOf(root, "tiny")
	text := strings.Replace(smallest, "globalSite: a", "globalSite: a\n  api: 127.0.0.1:0", 1)
	if err := writeFile(s.file(), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := writeJSON(s.processesFile(), []process{one}); err != nil {
		t.Fatal(err)
	}
	return s, root
}

// supervise runs a supervisor until the returned function is called.
func supervise(t *testing.T, root string) func() {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Supervise(ctx, root, "tiny", slog.New(slog.DiscardHandler)) }()
	stop := func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * patience):
			t.Error("the supervisor does not end")
		}
		ended <- nil
	}
	t.Cleanup(stop)
	return stop
}

// awaitRunning waits for a run of a process other than one seen before.
func awaitRunning(t *testing.T, s state, name string, before int) processRecord {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < 30*time.Second; time.Sleep(5 * time.Millisecond) {
		var record processRecord
		if readJSON(s.record(name), &record) == nil && record.running() && record.PID != before {
			return record
		}
	}
	t.Fatalf("%s does not run", name)
	return processRecord{}
}

func TestSupervisorRestartsAndEndsProcesses(t *testing.T) {
	s, root := supervised(t, process{Name: "sleeper", Arguments: []string{"sleep", "100"}})
	stop := supervise(t, root)
	first := awaitRunning(t, s, "sleeper", 0)
	if err := unix.Kill(first.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := awaitRunning(t, s, "sleeper", first.PID)
	if second.Restarts != 1 || second.LastExit != "signal: killed" {
		t.Errorf("%+v", second)
	}
	stop()
	if second.running() {
		t.Error("the process outlived its supervisor's orderly end")
	}
}

func TestSupervisorAdoptsWhatRuns(t *testing.T) {
	s, root := supervised(t, process{Name: "sleeper", Arguments: []string{"sleep", "100"}})
	orphan := exec.Command("sleep", "100")
	if err := orphan.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = orphan.Wait() }()
	record := processRecord{PID: orphan.Process.Pid, Since: time.Now()}
	record.Start, _ = startTime(record.PID)
	record.Identity = (&identities{}).of(process{Arguments: []string{"sleep", "100"}})
	if err := writeJSON(s.record("sleeper"), record); err != nil {
		t.Fatal(err)
	}
	stop := supervise(t, root)
	time.Sleep(100 * time.Millisecond)
	if found := awaitRunning(t, s, "sleeper", 0); found.PID != record.PID {
		t.Errorf("started %d beside %d", found.PID, record.PID)
	}
	if err := unix.Kill(record.PID, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := awaitRunning(t, s, "sleeper", record.PID)
	stop()
	if second.running() {
		t.Error("the process outlived its supervisor's orderly end")
	}
}

func TestSupervisorGivesTheListeningSocketsAndWaitsForFiles(t *testing.T) {
	s, root := supervised(t, process{})
	gate, result := s.path("gate"), s.path("result")
	one := process{
		Name: "listener", Listens: true, WaitFor: []string{gate},
		Arguments: []string{"sh", "-c", "readlink /proc/self/fd/3 /proc/self/fd/4 > " + result + "; exec sleep 100"},
	}
	if err := writeJSON(s.processesFile(), []process{one}); err != nil {
		t.Fatal(err)
	}
	supervise(t, root)
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(s.record("listener")); err == nil {
		t.Fatal("started before its file was there")
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	awaitRunning(t, s, "listener", 0)
	var links []byte
	for begun := time.Now(); time.Since(begun) < 30*time.Second && strings.Count(string(links), "socket:") < 2; time.Sleep(5 * time.Millisecond) {
		links, _ = os.ReadFile(result)
	}
	if strings.Count(string(links), "socket:") != 2 {
		t.Errorf("descriptors 3 and 4 are %q", links)
	}
	if address, err := os.ReadFile(s.apiFile()); err != nil || !strings.HasPrefix(string(address), "http://127.0.0.1:") {
		t.Errorf("API address %q, %v", address, err)
	}
}

func TestTwoSupervisorsAreRefused(t *testing.T) {
	s, root := supervised(t, process{Name: "sleeper", Arguments: []string{"sleep", "100"}})
	supervise(t, root)
	awaitRunning(t, s, "sleeper", 0)
	err := Supervise(context.Background(), root, "tiny", slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "has a supervisor already") {
		t.Errorf("got %v", err)
	}
}

// A process is replaced where its program was built anew with another content, and kept where it was only written again.
func TestSupervisorReplacesWhatWasBuiltAnew(t *testing.T) {
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rebuilt  []byte
		replaced bool
	}{
		"written again": {content, false},
		"another build": {append(content, 0), true},
	} {
		t.Run(name, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "program")
			one := process{Name: "sleeper", Arguments: []string{program, "100"}}
			write := func(content []byte) {
				_ = os.Remove(program) // a program that runs cannot be written to
				if err := os.WriteFile(program, content, 0o755); err != nil {
					t.Fatal(err)
				}
				one.Identity = (&identities{}).of(one)
			}
			write(content)
			s, root := supervised(t, one)
			orphan := exec.Command(program, "100")
			if err := orphan.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- orphan.Wait() }()
			record := processRecord{PID: orphan.Process.Pid, Since: time.Now(), Identity: one.Identity}
			record.Start, _ = startTime(record.PID)
			if err := writeJSON(s.record("sleeper"), record); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(s.tokenFile(), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if missing := s.missing([]process{one}); missing != "" {
				t.Fatalf("%s is missing before anything changed", missing)
			}
			write(c.rebuilt)
			if missing := s.missing([]process{one}); (missing != "") != c.replaced {
				t.Errorf("missing %q", missing)
			}
			stop := supervise(t, root)
			if !c.replaced {
				time.Sleep(100 * time.Millisecond)
				if found := awaitRunning(t, s, "sleeper", 0); found.PID != record.PID {
					t.Errorf("started %d in place of %d", found.PID, record.PID)
				}
				stop()
				return
			}
			second := awaitRunning(t, s, "sleeper", record.PID)
			if record.running() || second.Identity != one.Identity || second.LastExit != "replaced: its program changed" {
				t.Errorf("the old one runs: %v; the new one: %+v", record.running(), second)
			}
			stop()
			<-ended
		})
	}
}
