package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// busyMachine measures what the machine that the tests run on adds to waits: how late this process is woken, how long a
// connection waits that crosses the underlay and no forwarder, and for how long the processes on the packets' way, one after the
// other, were ready to run and had no processor.
type busyMachine struct {
	lab *laboratory
	// late, answered and starved are the longest so far, shortest is of a whole life; all in nanoseconds.
	late, answered, starved, shortest atomic.Int64
}

// moment is how often starving is looked at. It is summed over two of them: longer than any wait that a test allows.
const moment = 250 * time.Millisecond

// watchMachine measures until the context ends.
func watchMachine(ctx context.Context, t testing.TB, l *laboratory) *busyMachine {
	t.Helper()
	b := &busyMachine{lab: l}
	go b.watchWaking(ctx)
	go b.watchStarving(ctx)
	b.watchReference(ctx, t)
	return b
}

// took is what the machine may have added to one wait since restart.
func (b *busyMachine) took() time.Duration {
	reference := max(0, b.answered.Load()-b.shortest.Load())
	return time.Duration(max(b.late.Load(), reference) + b.starved.Load())
}

// restart begins to measure anew.
func (b *busyMachine) restart() {
	b.late.Store(0)
	b.answered.Store(0)
	b.starved.Store(0)
}

// watchStarving notes how long the threads on the packets' way waited for a processor within two moments.
func (b *busyMachine) watchStarving(ctx context.Context) {
	last := b.lab.waiting(onTheWay...)
	before := last
	for ctx.Err() == nil {
		time.Sleep(moment)
		now := b.lab.waiting(onTheWay...)
		b.starved.Store(max(b.starved.Load(), int64(now.since(before))))
		before, last = last, now
	}
}

// watchWaking notes how late this process is woken.
func (b *busyMachine) watchWaking(ctx context.Context) {
	const nap = 5 * time.Millisecond
	for ctx.Err() == nil {
		begun := time.Now()
		time.Sleep(nap)
		b.late.Store(max(b.late.Load(), int64(time.Since(begun)-nap)))
	}
}

// watchReference has a connection talk from one site to another outside the forwarders. One that cannot be made says nothing.
func (b *busyMachine) watchReference(ctx context.Context, t testing.TB) {
	t.Helper()
	var listener net.Listener
	b.lab.inside(t, "dc", func() (err error) {
		listener, err = net.Listen("tcp", dcControl+":0")
		return err
	})
	context.AfterFunc(ctx, func() { listener.Close() })
	go func() {
		if server, err := listener.Accept(); err == nil {
			defer server.Close()
			_, _ = io.Copy(server, server)
		}
	}()
	var client net.Conn
	b.lab.inside(t, "office", func() error {
		dialer := net.Dialer{Timeout: 5 * time.Second, FallbackDelay: -1}
		client, _ = dialer.DialContext(ctx, "tcp", listener.Addr().String())
		return nil
	})
	if client == nil {
		return
	}
	context.AfterFunc(ctx, func() { client.Close() })
	go func() {
		answers := bufio.NewReader(client)
		for ctx.Err() == nil {
			begun := time.Now()
			if _, err := io.WriteString(client, "reference\n"); err != nil {
				return
			}
			if _, err := answers.ReadString('\n'); err != nil {
				return
			}
			waited := int64(time.Since(begun))
			if least := b.shortest.Load(); least == 0 || waited < least {
				b.shortest.Store(waited)
			}
			b.answered.Store(max(b.answered.Load(), waited))
			time.Sleep(beat)
		}
	}()
}

// dcControl is where the data centre's control plane is reached over the underlay.
const dcControl = "198.18.1.4"

// onTheWay are the names of the processes that packets pass, as patterns.
var onTheWay = []string{"underlay", "forwarder-*"}

// running are the processes of some names, given as patterns. One that is just being replaced may be missing.
func (l *laboratory) running(patterns ...string) map[string]runRecord {
	found := map[string]runRecord{}
	for _, pattern := range patterns {
		files, _ := filepath.Glob(filepath.Join(l.root, l.name, "run", pattern+".json"))
		for _, file := range files {
			var record runRecord
			if text, err := os.ReadFile(file); err == nil && json.Unmarshal(text, &record) == nil {
				found[strings.TrimSuffix(filepath.Base(file), ".json")] = record
			}
		}
	}
	return found
}

// waiting is how long threads have been ready to run without a processor, by process and thread.
type waiting map[string]map[int]time.Duration

func (l *laboratory) waiting(patterns ...string) waiting {
	w := waiting{}
	for name, process := range l.running(patterns...) {
		w[name] = process.delays()
	}
	return w
}

// since is how long work waited that passes every process in turn: of each the thread counts that waited longest.
func (w waiting) since(before waiting) time.Duration {
	var sum time.Duration
	for process, threads := range w {
		var longest time.Duration
		for thread, waited := range threads {
			if earlier, known := before[process][thread]; known {
				longest = max(longest, waited-earlier)
			}
		}
		sum += longest
	}
	return sum
}

// delays are how long each thread of a process has been ready to run and had no processor (proc(5), schedstat).
func (r runRecord) delays() map[int]time.Duration {
	delays := map[int]time.Duration{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", r.PID))
	for _, file := range files {
		text, err := os.ReadFile(file)
		fields := strings.Fields(string(text))
		if err != nil || len(fields) < 2 { // it has just ended
			continue
		}
		thread, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		nanoseconds, _ := strconv.ParseInt(fields[1], 10, 64)
		delays[thread] = time.Duration(nanoseconds)
	}
	return delays
}

// attempts is how often something is tried that must be quick: a busy machine makes it slower and never quicker.
const attempts = 8

// once makes sure that one of several attempts finds nothing wrong. An attempt begins where the one before left off.
func once(t testing.TB, attempt func() error) {
	t.Helper()
	for number := 1; ; number++ {
		err := attempt()
		if err == nil {
			return
		}
		if t.Failed() || number == attempts {
			t.Fatalf("attempt %d: %v", number, err)
		}
		t.Logf("attempt %d of %d: %v", number, attempts, err)
	}
}
