package hostnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namespaceDirectory is where iproute2 keeps named network namespaces.
const namespaceDirectory = "/run/netns"

// Namespace is an open network namespace. Close it when done; it is safe for concurrent use until then.
type Namespace struct {
	// Name is the one under /run/netns; empty for the namespace of the process.
	Name   string
	handle netns.NsHandle
	links  *netlink.Handle
}

// EnsureNamespace makes a named network namespace, as `ip netns add` does, with its loopback interface up, and opens it.
func EnsureNamespace(name string) (*Namespace, error) {
	if err := checkNamespaceName(name); err != nil {
		return nil, err
	}
	if !NamespaceExists(name) {
		if err := makeNamespace(name); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", name, err)
		}
	}
	namespace, err := OpenNamespace(name)
	if err != nil {
		return nil, err
	}
	if err := namespace.SetUp("lo"); err != nil {
		namespace.Close()
		return nil, err
	}
	return namespace, nil
}

// OpenNamespace opens a named network namespace. Where there is none the error wraps os.ErrNotExist.
func OpenNamespace(name string) (*Namespace, error) {
	if err := checkNamespaceName(name); err != nil {
		return nil, err
	}
	handle, err := netns.GetFromPath(filepath.Join(namespaceDirectory, name))
	if err != nil {
		return nil, fmt.Errorf("namespace %s: %w", name, err)
	}
	return newNamespace(name, handle)
}

// CurrentNamespace opens the network namespace of this process.
func CurrentNamespace() (*Namespace, error) {
	handle, err := netns.Get()
	if err != nil {
		return nil, fmt.Errorf("own namespace: %w", err)
	}
	return newNamespace("", handle)
}

// DeleteNamespace removes a named network namespace. Its interfaces vanish when the last process in it has ended.
func DeleteNamespace(name string) error {
	if err := checkNamespaceName(name); err != nil {
		return err
	}
	path := filepath.Join(namespaceDirectory, name)
	// One mount may lie over another if two processes made the namespace at once.
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("namespace %s: unmount: %w", name, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("namespace %s: %w", name, err)
	}
	return nil
}

// NamespaceExists says whether there is a network namespace of that name.
func NamespaceExists(name string) bool {
	var file unix.Statfs_t
	if err := unix.Statfs(filepath.Join(namespaceDirectory, name), &file); err != nil {
		return false
	}
	return file.Type == unix.NSFS_MAGIC
}

// NamespaceNames lists the named network namespaces whose names begin with a prefix.
func NamespaceNames(prefix string) ([]string, error) {
	entries, err := os.ReadDir(namespaceDirectory)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("namespaces: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Close releases the handle; the namespace stays.
func (n *Namespace) Close() {
	n.links.Close()
	_ = n.handle.Close()
}

// Holds reports whether a process is inside the namespace.
func (n *Namespace) Holds(pid int) bool {
	var mine, its unix.Stat_t
	return unix.Fstat(int(n.handle), &mine) == nil && unix.Stat(fmt.Sprintf("/proc/%d/ns/net", pid), &its) == nil &&
		mine.Dev == its.Dev && mine.Ino == its.Ino
}

// Do runs a function on a thread inside the namespace. Goroutines that it starts run outside.
func (n *Namespace) Do(function func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(n.handle); err != nil {
			return fmt.Errorf("enter namespace %s: %w", n.Name, err)
		}
		return function()
	})
}

// Start starts a program inside the namespace.
func (n *Namespace) Start(command *exec.Cmd) error {
	return n.Do(command.Start)
}

// Run runs a program inside the namespace to its end and returns what it wrote to standard output. On failure the
// error has what it wrote to standard error.
func (n *Namespace) Run(command *exec.Cmd) ([]byte, error) {
	var output, complaint strings.Builder
	if command.Stdout == nil {
		command.Stdout = &output
	}
	if command.Stderr == nil {
		command.Stderr = &complaint
	}
	if err := n.Start(command); err != nil {
		return nil, err
	}
	if err := command.Wait(); err != nil {
		return []byte(output.String()), fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return []byte(output.String()), nil
}

func newNamespace(name string, handle netns.NsHandle) (*Namespace, error) {
	links, err := netlink.NewHandleAt(handle, unix.NETLINK_ROUTE)
	if err != nil {
		_ = handle.Close()
		return nil, fmt.Errorf("namespace %s: netlink: %w", name, err)
	}
	return &Namespace{Name: name, handle: handle, links: links}, nil
}

// makeNamespace makes the namespace on a thread of its own and binds it to its name.
func makeNamespace(name string) error {
	if err := shareNamespaceDirectory(); err != nil {
		return err
	}
	path := filepath.Join(namespaceDirectory, name)
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o444)
	if err != nil {
		return err
	}
	_ = file.Close()
	return onOwnThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("unshare: %w", err)
		}
		source := fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid())
		if err := unix.Mount(source, path, "none", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind to %s: %w", path, err)
		}
		return nil
	})
}

// onOwnThread runs a function that may move its thread to another network namespace. The thread serves other goroutines
// again only when it is back; otherwise it ends with its goroutine.
func onOwnThread(function func() error) error {
	result := make(chan error, 1)
	go func() {
		failure := errors.New("the function ended its goroutine")
		defer func() { result <- failure }()
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			failure = fmt.Errorf("own namespace: %w", err)
			return
		}
		defer home.Close()
		defer func() {
			if netns.Set(home) == nil {
				runtime.UnlockOSThread()
			}
		}()
		failure = function()
	}()
	return <-result
}

// shareNamespaceDirectory makes /run/netns a shared mount, as iproute2 does, so that a namespace removed in one mount
// namespace is removed in all.
func shareNamespaceDirectory() error {
	if err := os.MkdirAll(namespaceDirectory, 0o755); err != nil {
		return err
	}
	for {
		err := unix.Mount("", namespaceDirectory, "none", unix.MS_SHARED|unix.MS_REC, "")
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("share %s: %w", namespaceDirectory, err)
		}
		if err := unix.Mount(namespaceDirectory, namespaceDirectory, "none", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", namespaceDirectory, err)
		}
	}
}

func checkNamespaceName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("namespace name %q: use a file name", name)
	}
	return nil
}
