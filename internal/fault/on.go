//go:build faults

package fault

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

var reached atomic.Int64

// Point ends the process where the environment says so.
func Point(step string) {
	name, count, _ := strings.Cut(os.Getenv("SWITCHBOARD_FAULT"), ":")
	if name != step {
		return
	}
	if n, err := strconv.ParseInt(count, 10, 64); err == nil && reached.Add(1) < n {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // until the signal arrives
}
