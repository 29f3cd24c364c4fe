// Command switchboard is the control plane of Switchboard: sites, the Global
// Switchboard, platform services, the laboratory and the command line.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks to end; what does not hear it (a read that blocks) is ended by the second.
	context.AfterFunc(ctx, stop)
	err := newRootCommand().ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	if err != nil {
		message, code := outcome(err, interrupted)
		fmt.Fprintln(os.Stderr, "switchboard:", message)
		os.Exit(code)
	}
}

// interruptedCode is what shells give a command that an interrupt ended: 128 and the signal's number.
const interruptedCode = 128 + int(syscall.SIGINT)

// outcome is what is said of a command that did not come to its end, and its exit code. A command that only runs until it is
// interrupted has no error then.
func outcome(err error, interrupted bool) (message string, code int) {
	switch {
	case !interrupted:
		return err.Error(), exitCode(err)
	case strings.Contains(err.Error(), "interrupted"):
		return err.Error(), interruptedCode
	}
	return "interrupted", interruptedCode
}
