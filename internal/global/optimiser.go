package global

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/switchboard-project/switchboard/internal/chain"
)

// WorkersConfig says which optimisers this process runs.
type WorkersConfig struct {
	// Program is switchboard-te.
	Program string
	// Credentials is the file with which an optimiser connects to the site's bus.
	Credentials string
	// Count is how many run.
	Count int
}

const (
	firstRestart = 50 * time.Millisecond
	lastRestart  = 5 * time.Second
	// steadyRun is the run after which an optimiser counts as working, and its next restart is quick again.
	steadyRun = 10 * time.Second
	// farewell is how long an optimiser may take to end when asked.
	farewell = 2 * time.Second
)

// keepWorkers runs the optimisers of this process until ctx ends.
func (g *Global) keepWorkers(ctx context.Context) {
	var running sync.WaitGroup
	for i := range g.config.Engineering.Workers.Count {
		running.Go(func() { g.keepWorker(ctx, fmt.Sprintf("te%d", i+1)) })
	}
	running.Wait()
}

// keepWorker runs one optimiser for as long as ctx lasts, again whenever it ends.
func (g *Global) keepWorker(ctx context.Context, name string) {
	// The kernel ends the child when the thread that started it ends, so that none outlives this process.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait := firstRestart
	for {
		begun := time.Now()
		how := g.runWorker(ctx, name)
		g.engineering.lost.tell()
		if ctx.Err() != nil {
			return
		}
		at := chain.Key{Kind: chain.KindSite, Name: g.connection.Site()}
		g.events.add(at, warning, "OptimiserEnded", fmt.Sprintf("optimiser %s ended: %s; it is started again", name, how), sourceGlobal)
		if time.Since(begun) > steadyRun {
			wait = firstRestart
		}
		if !sleep(ctx, wait) {
			return
		}
		wait = min(2*wait, lastRestart)
	}
}

// runWorker runs an optimiser once and says how it ended.
func (g *Global) runWorker(ctx context.Context, name string) string {
	config := g.config.Engineering.Workers
	process := exec.CommandContext(ctx, config.Program, "serve", "--credentials", config.Credentials, "--name", name, "--threads", "1", "-q")
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = farewell
	said := &lastLines{}
	process.Stdout, process.Stderr = said, said
	err := process.Run()
	if words := said.text(); words != "" {
		return fmt.Sprintf("%v (%s)", err, words)
	}
	if err == nil {
		return "it left by itself"
	}
	return err.Error()
}

// lastLines keeps the end of what a program says.
type lastLines struct {
	mu   sync.Mutex
	tail []byte
}

const keptTail = 400

// Write takes more of it.
func (l *lastLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tail = append(l.tail, p...)
	if len(l.tail) > keptTail {
		l.tail = l.tail[len(l.tail)-keptTail:]
	}
	return len(p), nil
}

func (l *lastLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.TrimSpace(string(l.tail))
}
