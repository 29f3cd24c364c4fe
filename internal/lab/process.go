package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// markVariable is in the environment of every process of a laboratory, and so of their children: "<lab>/<process>".
const markVariable = "SWITCHBOARD_LAB"

// process is one that the supervisor keeps running.
type process struct {
	Name string `json:"name"`
	// Namespace is the network namespace it runs in; empty: the host's.
	Namespace string `json:"namespace,omitempty"`
	// Arguments begin with the program.
	Arguments []string `json:"arguments"`
	// WaitFor are files that must exist before it starts.
	WaitFor []string `json:"wait_for,omitempty"`
	// Listens says that it takes the API's listening sockets as descriptors 3 (TCP) and 4 (Unix).
	Listens bool `json:"listens,omitempty"`
	// Identity is what it is to be started from: see identities. The supervisor goes by what it finds itself.
	Identity string `json:"identity,omitempty"`
	// Forwards says that packets pass through it.
	Forwards bool `json:"forwards,omitempty"`
}

// processRecord is what the supervisor notes of a running process.
type processRecord struct {
	PID int `json:"pid"`
	// Start is the kernel's start time, by which a reused PID is told from the process.
	Start    uint64    `json:"start"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	// LastExit says how the run before this one ended.
	LastExit string `json:"last_exit,omitempty"`
	// Identity is what it was started from: see identities.
	Identity string `json:"identity,omitempty"`
}

// running says whether the recorded process is still there.
func (r processRecord) running() bool {
	start, err := startTime(r.PID)
	return err == nil && start == r.Start
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot. A zombie counts as gone.
func startTime(pid int) (uint64, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The command in parentheses may hold anything; fields count from behind it.
	fields := strings.Fields(string(content[bytes.LastIndexByte(content, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// processesOf finds every process of a laboratory: those that bear its mark, and those in its namespaces, whoever
// started them. This process is left out.
func processesOf(laboratory string) ([]int, error) {
	inside, err := namespaceInodes(Prefix(laboratory))
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, err := startTime(pid); err != nil {
			continue
		}
		if marked(pid, laboratory+"/") || inside[networkInode(pid)] {
			found = append(found, pid)
		}
	}
	return found, nil
}

func marked(pid int, mark string) bool {
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	for _, variable := range bytes.Split(environment, []byte{0}) {
		if value, ok := bytes.CutPrefix(variable, []byte(markVariable+"=")); ok && bytes.HasPrefix(value, []byte(mark)) {
			return true
		}
	}
	return false
}

func namespaceInodes(prefix string) (map[uint64]bool, error) {
	names, err := hostnet.NamespaceNames(prefix)
	if err != nil {
		return nil, err
	}
	inodes := map[uint64]bool{}
	for _, name := range names {
		var file unix.Stat_t
		if hostnet.NamespaceExists(name) && unix.Stat(filepath.Join("/run/netns", name), &file) == nil {
			inodes[file.Ino] = true
		}
	}
	return inodes, nil
}

func networkInode(pid int) uint64 {
	var file unix.Stat_t
	if err := unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &file); err != nil {
		return 0
	}
	return file.Ino
}

// endAll kills processes that find names until it names none. A process is held by a descriptor between the look and
// the signal, so that a reused number is never hit.
func endAll(find func() ([]int, error)) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		pids, err := find()
		if err != nil || len(pids) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v do not end", pids)
		}
		if err := signalSame(pids, find); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func signalSame(pids []int, find func() ([]int, error)) error {
	held := map[int]int{}
	defer func() {
		for _, descriptor := range held {
			unix.Close(descriptor)
		}
	}()
	for _, pid := range pids {
		descriptor, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
		held[pid] = descriptor
	}
	again, err := find()
	if err != nil {
		return err
	}
	for _, pid := range again {
		if descriptor, ok := held[pid]; ok {
			if err := unix.PidfdSendSignal(descriptor, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
		}
	}
	return nil
}
