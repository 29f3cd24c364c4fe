package needs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownMountsVariable tells the test program that it is the one with the mounts of its own.
const ownMountsVariable = "SWITCHBOARD_TESTS_OWN_MOUNTS"

const namedNamespaces = "/run/netns"

// OwnNamespaces runs the tests of a package, and returns their exit code, in a process whose names of network namespaces are its own:
// they are mounts, and go with it however it ends. Without root, where nothing is named, it runs them here.
func OwnNamespaces(run func() int) int {
	switch {
	case os.Geteuid() != 0:
		return run()
	case os.Getenv(ownMountsVariable) == "":
		return runWithOwnMounts()
	}
	if err := os.Unsetenv(ownMountsVariable); err == nil {
		err = errors.Join(os.MkdirAll(namedNamespaces, 0o755), unix.Mount("tmpfs", namedNamespaces, "tmpfs", 0, "mode=0755"))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", namedNamespaces, err)
			return 1
		}
	}
	return run()
}

// runWithOwnMounts runs this program again, which ends with this process.
func runWithOwnMounts() int {
	runtime.LockOSThread() // whose end would be taken for this process's
	again := exec.Command("/proc/self/exe", os.Args[1:]...)
	again.Env = append(os.Environ(), ownMountsVariable+"=yes")
	again.Stdin, again.Stdout, again.Stderr = os.Stdin, os.Stdout, os.Stderr
	again.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := again.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		fmt.Fprintf(os.Stderr, "tests in mounts of their own: %v\n", err)
		return 1
	}
	return again.ProcessState.ExitCode()
}
