package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// scaleFigures is what each event did, over its repetitions.
type scaleFigures struct {
	Bench   string        `json:"bench"`
	Commit  string        `json:"commit"`
	Machine string        `json:"machine"`
	Events  []scaleFigure `json:"events"`
}

// scaleFigure is one kind of event. Packets are those of a probe, one every two milliseconds, both ways together.
type scaleFigure struct {
	Event       string `json:"event"`
	Repetitions int    `json:"repetitions"`
	Connections int    `json:"connections"`
	Broken      int    `json:"connections_broken"`
	lastBroken  int
	Share       float64 `json:"connections_broken_percent"`
	// Lost and Twice are packets of the probe, per event.
	Lost  []int `json:"packets_lost"`
	Twice []int `json:"packets_twice"`
	// Gaps are the longest times between two answers to the probe, in milliseconds: how long the event held packets up.
	Gaps      []float64 `json:"longest_gap_ms"`
	MedianGap float64   `json:"median_gap_ms"`
	// Waits are the longest times any connection waited for an answer, in milliseconds.
	Waits []float64 `json:"longest_wait_ms"`
}

// scaleEvent is something that happens to a forwarder while connections run.
type scaleEvent struct {
	name string
	// before brings about what the event needs, outside the measurement; it may be nil.
	before func()
	do     func()
}

// BenchmarkScale measures, once, what connections and packets suffer when a forwarder comes, goes, is killed and is started again.
// `make bench-scale` records it.
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		measureScale(b)
	}
}

func measureScale(b *testing.B) {
	const connections, port = 200, 5365
	const repetitions = 5
	l := ownLaboratory(b, "scalefig", "1\n  spareForwarders: true")
	echoServer(b, l, "www", port)
	datagramEcho(b, l, "www", port)
	c := chainSpec{name: "measured", customer: "acme", edge: "office-lan", vnfs: []string{"west", "pair"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], destinationPorts: ["%d"], protocols: [tcp, udp]}`, port)}
	l.activate(b, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	result := scaleFigures{Bench: "scale", Commit: commit(), Machine: machine()}
	events := scaleEvents(b, l)
	measured := make([]scaleFigure, len(events))
	var f *flows
	for repetition := range repetitions {
		for i, e := range events {
			// Weights change after connections began, so that nobody could make their choices again.
			if i == 0 || measured[i-1].lastBroken > 0 {
				f = l.reopen(b, f, server, connections, repetition)
			}
			measured[i].Event = e.name
			l.measureEvent(b, e, &measured[i], f, server)
			b.Logf("%d of %d, event %d of %d: %s", repetition+1, repetitions, i+1, len(events), &measured[i])
		}
	}
	for _, one := range measured {
		one.Share = rounded(100 * float64(one.Broken) / float64(one.Connections))
		sorted := slices.Sorted(slices.Values(one.Gaps))
		one.MedianGap = sorted[len(sorted)/2]
		result.Events = append(result.Events, one)
	}
	publish(b, result)
}

// reopen ends connections, if there are any, and opens others; then weights change.
func (l *laboratory) reopen(t testing.TB, before *flows, server netip.AddrPort, connections, turn int) *flows {
	t.Helper()
	if before != nil {
		_ = before.end() // what broke has been counted
	}
	weights := []string{"[900, 100]", "[100, 900]"}
	l.deploy(t, 2, weights[turn%2])
	f := startFlows(t, l, "acme-host", server, connections)
	l.deploy(t, 2, weights[(turn+1)%2])
	time.Sleep(time.Second)
	return f
}

// scaleEvents are those of one repetition, in their order: each finds what those before have left.
func scaleEvents(t testing.TB, l *laboratory) []scaleEvent {
	names := map[string]int{"edge-west": 1, "office": 1}
	add := func(site string) func() {
		return func() { names[site]++; l.scale(t, site, "2") }
	}
	removeOld := func(site string) func() {
		return func() { l.scale(t, site, "1", "--remove", fmt.Sprintf("f%d", names[site]-1)) }
	}
	forwarder := func(site string) string {
		if names[site] == 1 {
			return "forwarder-" + site
		}
		return fmt.Sprintf("forwarder-%s.f%d", site, names[site])
	}
	ready := func(site string) func() { return func() { l.processesOf(t, forwarder(site)) } }
	steady := func(site string) func() { return func() { l.awaitSteady(t, forwarder(site)) } }
	end := func(site string, s syscall.Signal, takesOver bool) func() {
		return func() { l.endForwarder(t, forwarder(site), s, takesOver) }
	}
	return []scaleEvent{
		{"add a forwarder: instances move to it", nil, add("edge-west")},
		{"remove a forwarder with instances", nil, removeOld("edge-west")},
		{"add a forwarder where the edge is", nil, add("office")},
		{"remove a forwarder with the edge", nil, removeOld("office")},
		{"kill -9 a forwarder with the edge; its spare takes over", ready("office"), end("office", syscall.SIGKILL, true)},
		{"kill -9 a forwarder with instances; its spare takes over", ready("edge-west"), end("edge-west", syscall.SIGKILL, true)},
		{"stop a forwarder with instances; its spare takes over", ready("edge-west"), end("edge-west", syscall.SIGTERM, true)},
		{"kill -9 a forwarder with the edge; it is started again", steady("office"), end("office", syscall.SIGKILL, false)},
		{"kill -9 a forwarder with instances; it is started again", steady("edge-west"), end("edge-west", syscall.SIGKILL, false)},
	}
}

// endForwarder ends a forwarder's process that forwards, and its spare too where that is not to take over, and waits until it has
// been started again.
func (l *laboratory) endForwarder(t testing.TB, forwarder string, s syscall.Signal, takesOver bool) {
	t.Helper()
	active, spare := l.processesOf(t, forwarder)
	before := l.record(t, active)
	if !takesOver {
		_ = syscall.Kill(l.record(t, spare).PID, syscall.SIGKILL)
	}
	_ = syscall.Kill(before.PID, s)
	eventually(t, time.Minute, func() error {
		if l.record(t, active).PID == before.PID {
			return fmt.Errorf("%s was not started again", active)
		}
		return nil
	})
	time.Sleep(2 * time.Second)
}

// awaitSteady waits until a forwarder's processes have run for so long that the supervisor starts them again at once.
func (l *laboratory) awaitSteady(t testing.TB, forwarder string) {
	t.Helper()
	const steadyAfter = 10*time.Second + 200*time.Millisecond // internal/lab, and a little
	active, spare := l.processesOf(t, forwarder)
	for _, process := range []string{active, spare} {
		time.Sleep(time.Until(l.record(t, process).Since.Add(steadyAfter)))
	}
}

// processesOf tells a forwarder's process that forwards from the one that waits for its end.
func (l *laboratory) processesOf(t testing.TB, forwarder string) (active, spare string) {
	t.Helper()
	both := []string{forwarder, forwarder + ".spare"}
	eventually(t, time.Minute, func() error {
		active, spare = "", ""
		for _, name := range both {
			if forwards(l.record(t, name).PID) {
				active = name
			} else {
				spare = name
			}
		}
		if active == "" || spare == "" {
			return fmt.Errorf("of %v %q forwards and %q waits", both, active, spare)
		}
		return nil
	})
	return active, spare
}

// forwards reports whether a process has a thread that moves packets.
func forwards(process int) bool {
	names, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", process))
	return slices.ContainsFunc(names, func(file string) bool {
		name, err := os.ReadFile(file)
		return err == nil && strings.HasPrefix(string(name), "worker-")
	})
}

// measureEvent lets something happen while connections and a probe run.
func (l *laboratory) measureEvent(t testing.TB, e scaleEvent, into *scaleFigure, f *flows, server netip.AddrPort) {
	t.Helper()
	if e.before != nil {
		e.before()
	}
	f.longest()
	p := startProbe(t, l, "acme-host", server)
	e.do()
	time.Sleep(500 * time.Millisecond)
	lost, twice, gap := p.end()
	wait := f.longest()
	into.Repetitions++
	into.Connections += len(f.all)
	into.lastBroken = len(f.silent(5 * time.Second))
	into.Broken += into.lastBroken
	into.Lost, into.Twice = append(into.Lost, lost), append(into.Twice, twice)
	into.Gaps = append(into.Gaps, rounded(float64(gap.Microseconds())/1000))
	into.Waits = append(into.Waits, rounded(float64(wait.Microseconds())/1000))
}

// String tells the last repetition.
func (s *scaleFigure) String() string {
	last := len(s.Gaps) - 1
	return fmt.Sprintf("%s: %d connections broken; of the probe %d packets lost, %d twice, longest gap %.0f ms", s.Event, s.lastBroken,
		s.Lost[last], s.Twice[last], s.Gaps[last])
}

// datagramEcho answers each datagram with itself, in a machine of the laboratory.
func datagramEcho(t testing.TB, l *laboratory, machine string, port uint16) {
	t.Helper()
	var socket net.PacketConn
	l.inside(t, machine, func() (err error) {
		socket, err = net.ListenPacket("udp", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { socket.Close() })
	go func() {
		buffer := make([]byte, 2048)
		for {
			n, from, err := socket.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = socket.WriteTo(buffer[:n], from)
		}
	}()
}

// probe sends numbered datagrams at a steady pace and notes which come back.
type probe struct {
	stop     context.CancelFunc
	done     sync.WaitGroup
	socket   net.Conn
	sent     uint64
	answered map[uint64]int
	last     time.Time
	gap      time.Duration
}

// probePace is the time between two datagrams.
const probePace = 2 * time.Millisecond

func startProbe(t testing.TB, l *laboratory, machine string, server netip.AddrPort) *probe {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	p := &probe{stop: cancel, answered: map[uint64]int{}}
	l.inside(t, machine, func() (err error) {
		p.socket, err = net.Dial("udp", server.String())
		return err
	})
	t.Cleanup(func() { cancel(); p.socket.Close() })
	p.done.Go(func() {
		tick := time.NewTicker(probePace)
		defer tick.Stop()
		for ctx.Err() == nil {
			<-tick.C
			if _, err := p.socket.Write(binary.BigEndian.AppendUint64(nil, p.sent)); err == nil {
				p.sent++
			}
		}
	})
	p.done.Go(func() {
		buffer := make([]byte, 64)
		for {
			n, err := p.socket.Read(buffer)
			if err != nil {
				if ctx.Err() != nil {
					return
				}
				continue
			}
			now := time.Now()
			if n == 8 {
				p.answered[binary.BigEndian.Uint64(buffer)]++
			}
			if !p.last.IsZero() {
				p.gap = max(p.gap, now.Sub(p.last))
			}
			p.last = now
		}
	})
	time.Sleep(500 * time.Millisecond)
	return p
}

// end stops the probe and tells how many datagrams did not come back, how many came more than once, and the longest time
// between two answers.
func (p *probe) end() (lost, twice int, gap time.Duration) {
	p.stop()
	_ = p.socket.SetReadDeadline(time.Now().Add(time.Second)) // what is under way still counts
	p.done.Wait()
	for number := range p.sent {
		switch times := p.answered[number]; {
		case times == 0:
			lost++
		case times > 1:
			twice++
		}
	}
	return lost, twice, p.gap
}
