package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// Down removes every trace of a laboratory: processes, namespaces with their links, state. It needs nothing that Up
// recorded, so it also removes a laboratory that is half built, and succeeds where there is none.
func Down(root, name string, progress *Progress) error {
	if !namePattern.MatchString(name) {
		return fmt.Errorf("laboratory name %q: use lower-case letters, digits and hyphens", name)
	}
	known, err := Names(root)
	if err != nil {
		return err
	}
	s := stateOf(root, name)
	unlock, err := s.lock()
	if err != nil {
		return err
	}
	defer unlock()
	// The supervisor first: it would start again what ends.
	if err := endAll(s.supervisors); err != nil {
		return err
	}
	everything := func() ([]int, error) { return processesOf(name) }
	found, err := everything()
	if err != nil {
		return err
	}
	if err := endAll(everything); err != nil {
		return err
	}
	progress.Step("%d processes ended", len(found))
	if err := deleteNamespaces(name, progress); err != nil {
		return err
	}
	for _, directory := range []string{s.flowTables(), s.Directory} {
		if err := os.RemoveAll(directory); err != nil {
			return err
		}
	}
	// The directories above go with the last laboratory; while they are not empty this fails, as it should.
	if os.Remove(root) == nil {
		_ = os.Remove(filepath.Dir(root))
	}
	if slices.Contains(known, name) || len(found) > 0 {
		progress.Step("state removed from %s", s.Directory)
		return nil
	}
	if others := strings.Join(known, ", "); others != "" {
		progress.Step("there was no laboratory %s; there is %s", name, others)
	} else {
		progress.Step("there was no laboratory %s", name)
	}
	return nil
}

// supervisors finds the one that holds the lock's file, by its mark.
func (s state) supervisors() ([]int, error) {
	all, err := processesOf(s.Name)
	if err != nil {
		return nil, err
	}
	var found []int
	for _, pid := range all {
		if marked(pid, s.Name+"/"+supervisorProcess) && isSupervisor(pid) {
			found = append(found, pid)
		}
	}
	return found, nil
}

// isSupervisor tells it from the processes that inherited its mark and have not got their own yet.
func isSupervisor(pid int) bool {
	words, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	return err == nil && strings.Contains(string(words), "\x00supervise\x00")
}

// deleteNamespaces removes every namespace of the laboratory, also those that VNF agents made.
func deleteNamespaces(name string, progress *Progress) error {
	names, err := hostnet.NamespaceNames(Prefix(name))
	if err != nil {
		return err
	}
	for _, namespace := range names {
		if err := hostnet.DeleteNamespace(namespace); err != nil {
			return err
		}
	}
	progress.Step("%d namespaces removed", len(names))
	return nil
}

// Progress tells a person what was done and how long it took.
type Progress struct {
	begun time.Time
	write func(string)
}

// NewProgress starts the clock; write gets each line.
func NewProgress(write func(line string)) *Progress {
	return &Progress{begun: time.Now(), write: write}
}

// Step reports one thing done.
func (p *Progress) Step(format string, values ...any) {
	p.write(fmt.Sprintf("%6.2fs  ", time.Since(p.begun).Seconds()) + fmt.Sprintf(format, values...))
}
