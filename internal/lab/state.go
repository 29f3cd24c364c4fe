package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultRoot holds the laboratories' state directories.
const DefaultRoot = "/var/lib/switchboard/lab"

// ErrNoLaboratory reports that there is no laboratory of the name, or none at all.
var ErrNoLaboratory = errors.New("no such laboratory")

// state is a laboratory's directory.
type state struct {
	Name      string
	Directory string
}

func stateOf(root, name string) state {
	return state{Name: name, Directory: filepath.Join(root, name)}
}

// FindName returns the given name, or, where it is empty, that of the only laboratory there is.
func FindName(root, name string) (string, error) {
	names, err := Names(root)
	if err != nil {
		return "", err
	}
	if name != "" {
		for _, found := range names {
			if found == name {
				return name, nil
			}
		}
		return "", fmt.Errorf("%w: %s; `switchboard lab up -f FILE` makes one", ErrNoLaboratory, name)
	}
	switch len(names) {
	case 0:
		return "", fmt.Errorf("%w runs here; `switchboard lab up -f FILE` makes one", ErrNoLaboratory)
	case 1:
		return names[0], nil
	}
	return "", fmt.Errorf("several laboratories run here (%s): say which with --lab, or with --server and --token-file", strings.Join(names, ", "))
}

// Names lists the laboratories that have state below a root directory.
func Names(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		if entry.IsDir() && namePattern.MatchString(entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Endpoint is where the API of the only laboratory below a root directory is, and the file with its token; empty where
// none is up. Several are an error: the caller must say which.
func Endpoint(root string) (server, tokenFile string, err error) {
	name, err := FindName(root, "")
	if errors.Is(err, ErrNoLaboratory) {
		return "", "", nil
	}
	if err != nil {
		return "", "", err
	}
	s := stateOf(root, name)
	address, err := os.ReadFile(s.apiFile())
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	return strings.TrimSpace(string(address)), s.tokenFile(), err
}

func (s state) path(parts ...string) string {
	return filepath.Join(append([]string{s.Directory}, parts...)...)
}

// flowTables is the directory of a site's flow tables, which want a file system in memory.
func (s state) flowTables(parts ...string) string {
	return filepath.Join(append([]string{"/dev/shm/switchboard-lab-" + s.Name}, parts...)...)
}

func (s state) root() string           { return filepath.Dir(s.Directory) }
func (s state) file() string           { return s.path("laboratory.yaml") }
func (s state) processesFile() string  { return s.path("processes.json") }
func (s state) crewsFile() string      { return s.path("forwarders.json") }
func (s state) underlayFile() string   { return s.path("underlay.json") }
func (s state) underlayStatus() string { return s.path("underlay-status.json") }
func (s state) apiSocket() string      { return s.path("api.sock") }
func (s state) tokenFile() string      { return s.path("token") }
func (s state) apiFile() string        { return s.path("api") }
func (s state) supervisorLock() string { return s.path("supervisor.lock") }

func (s state) log(process string) string    { return s.path("logs", process+".log") }
func (s state) record(process string) string { return s.path("run", process+".json") }

// lock makes the directory and holds it alone until the returned function is called or the process ends.
func (s state) lock() (func(), error) {
	for {
		if err := os.MkdirAll(s.Directory, 0o755); err != nil {
			return nil, err
		}
		directory, err := os.Open(s.Directory)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(directory.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			directory.Close()
			return nil, fmt.Errorf("laboratory %s is being changed by another `switchboard lab`: wait for it to end", s.Name)
		}
		// Another may have removed the directory while this one waited to open it.
		held, err := directory.Stat()
		if err == nil {
			var now os.FileInfo
			if now, err = os.Stat(s.Directory); err == nil && os.SameFile(held, now) {
				return func() { directory.Close() }, nil
			}
		}
		directory.Close()
	}
}

// writeFile replaces a file as a whole, making its directory.
func writeFile(path string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished := path + ".new"
	if err := os.WriteFile(unfinished, content, mode); err != nil {
		return err
	}
	return os.Rename(unfinished, path)
}

func writeJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, content, 0o644)
}

func readJSON(path string, value any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(content, value); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
