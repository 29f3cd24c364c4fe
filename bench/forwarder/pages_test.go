// Package forwarder checks the script that reserves pages for the forwarder's benchmark.
package forwarder

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// machine stands for one: its number of pages, and what the script remembers.
type machine struct {
	t     *testing.T
	at    string
	pages string
}

func newMachine(t *testing.T) machine {
	m := machine{t: t, at: t.TempDir()}
	m.pages = filepath.Join(m.at, "nr_hugepages")
	if err := os.WriteFile(m.pages, []byte("5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// start runs a command that writes the number of pages to the file NAME and waits for the file NAME.end.
func (m machine) start(name string) *exec.Cmd {
	m.t.Helper()
	script := `cat "$0" >"$1.part"; mv "$1.part" "$1"; until [ -e "$1.end" ]; do sleep 0.01; done`
	c := exec.Command("./pages.sh", m.pages, filepath.Join(m.at, "state"), "1536", "bash", "-c", script, m.pages, filepath.Join(m.at, name))
	if err := c.Start(); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { m.end(name); _ = c.Process.Kill(); _ = c.Wait() })
	return c
}

func (m machine) end(name string) {
	if err := os.WriteFile(filepath.Join(m.at, name+".end"), nil, 0o600); err != nil {
		m.t.Error(err)
	}
}

func (m machine) runs(name string) bool {
	_, err := os.Stat(filepath.Join(m.at, name))
	return err == nil
}

// reserved waits until a command runs and returns the number of pages that it saw.
func (m machine) reserved(name string) string {
	m.t.Helper()
	for end := time.Now().Add(10 * time.Second); !m.runs(name); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			m.t.Fatalf("%s does not run", name)
		}
	}
	return m.read(name)
}

func (m machine) read(name string) string {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.at, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func (m machine) expect(name, want string) {
	m.t.Helper()
	if got := m.read(name); got != want {
		m.t.Errorf("%s pages, want %s", got, want)
	}
}

// Of two at once the second waits, and the number is what it was before both.
func TestPagesArePutBackByTwoAtOnce(t *testing.T) {
	m := newMachine(t)
	first := m.start("first")
	if got := m.reserved("first"); got != "1536" {
		t.Errorf("the first has %s pages", got)
	}
	second := m.start("second")
	time.Sleep(200 * time.Millisecond)
	if m.runs("second") {
		t.Error("the second does not wait for the first")
	}
	m.end("first")
	if err := first.Wait(); err != nil {
		t.Error(err)
	}
	if got := m.reserved("second"); got != "1536" {
		t.Errorf("the second has %s pages", got)
	}
	m.end("second")
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	m.expect("nr_hugepages", "5")
}

// One that is asked to end puts the number back; after one that is killed the next does.
func TestPagesArePutBackAfterOneThatEndsBeforeItsTime(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		m := newMachine(t)
		c := m.start("ended")
		m.reserved("ended")
		if err := c.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(); err == nil {
			t.Errorf("%s: the script ends as if nothing had happened", signal)
		}
		m.end("ended")
		if signal == syscall.SIGKILL {
			m.expect("nr_hugepages", "1536")
			next := m.start("next")
			m.reserved("next")
			m.end("next")
			if err := next.Wait(); err != nil {
				t.Error(err)
			}
		}
		m.expect("nr_hugepages", "5")
	}
}
