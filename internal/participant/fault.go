package participant

import (
	"os"
	"syscall"
)

// FaultFromEnvironment ends the process as kill -9 would at the step that SWITCHBOARD_FAULT names, so that tests can
// show that nothing is lost there. Without the variable it does nothing.
func FaultFromEnvironment(step string) {
	if os.Getenv("SWITCHBOARD_FAULT") == step {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {} // until the signal arrives
	}
}
