package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// echoServer answers each line of a TCP connection with the same line, in a machine of the laboratory.
func echoServer(t testing.TB, l *laboratory, machine string, port uint16) {
	t.Helper()
	var listener net.Listener
	l.inside(t, machine, func() (err error) {
		listener, err = net.Listen("tcp", fmt.Sprintf(":%d", port))
		return err
	})
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
}

// flow is one TCP connection that says something every beat and waits for the answer.
type flow struct {
	connection net.Conn
	// Local is the client's address and port, by which conntrack entries are told apart.
	Local netip.AddrPort
	// answers counts lines that came back; longest is the longest wait for one, in nanoseconds.
	answers atomic.Int64
	longest atomic.Int64
	failure error
}

// flows are connections from one machine to an echo server.
type flows struct {
	all     []*flow
	done    sync.WaitGroup
	stop    context.CancelFunc
	machine *busyMachine
	// lost is what was lost, and sentAgain how many segments were, before the last look.
	lost      losses
	sentAgain uint32
}

// patience is how long one exchange may take before something is broken rather than slow.
const patience = 30 * time.Second

// beat is how often each flow says something.
const beat = 20 * time.Millisecond

// startFlows opens connections from a machine and keeps them talking until stopped.
func startFlows(t testing.TB, l *laboratory, machine string, server netip.AddrPort, count int) *flows {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &flows{stop: cancel, lost: l.losses(t), machine: watchMachine(ctx, t, l)}
	t.Cleanup(func() { f.end() })
	for range count {
		one := &flow{}
		l.inside(t, machine, func() (err error) {
			dialer := net.Dialer{Timeout: patience, FallbackDelay: -1}
			one.connection, err = dialer.Dial("tcp", server.String())
			return err
		})
		one.Local = one.connection.LocalAddr().(*net.TCPAddr).AddrPort()
		f.all = append(f.all, one)
	}
	for _, one := range f.all {
		f.done.Go(func() { one.failure = one.talk(ctx) })
	}
	return f
}

func (f *flow) talk(ctx context.Context) error {
	defer f.connection.Close()
	answers := bufio.NewReader(f.connection)
	for number := 0; ctx.Err() == nil; number++ {
		begun := time.Now()
		line := fmt.Sprintf("%d %s\n", number, f.Local)
		if err := f.connection.SetDeadline(begun.Add(patience)); err != nil {
			return err
		}
		if _, err := io.WriteString(f.connection, line); err != nil {
			return fmt.Errorf("send %d: %w", number, err)
		}
		answer, err := answers.ReadString('\n')
		if err != nil {
			return fmt.Errorf("answer %d: %w", number, err)
		}
		if answer != line {
			return fmt.Errorf("answer %d is %q, not %q", number, answer, line)
		}
		waited := time.Since(begun)
		f.answers.Add(1)
		f.longest.Store(max(f.longest.Load(), int64(waited)))
		time.Sleep(beat - min(waited, beat))
	}
	return nil
}

// end stops the connections and returns what went wrong with any.
func (f *flows) end() error {
	f.stop()
	f.done.Wait()
	var failures []error
	for _, one := range f.all {
		if one.failure != nil && !errors.Is(one.failure, net.ErrClosed) {
			failures = append(failures, fmt.Errorf("connection from %s: %w", one.Local, one.failure))
		}
	}
	return errors.Join(failures...)
}

// longest is the longest wait of any connection for an answer since the last call.
func (f *flows) longest() time.Duration {
	f.machine.restart()
	var longest int64
	for _, one := range f.all {
		longest = max(longest, one.longest.Swap(0))
	}
	return time.Duration(longest)
}

// stall is the longest wait since the last look, and the longest that may have been.
func (f *flows) stall(t testing.TB) (waited, allowed time.Duration) {
	t.Helper()
	took := f.machine.took()
	waited = f.longest()
	t.Logf("longest wait: %s; the machine took up to %s", waited, took)
	return waited, longestStall + took
}

// checkStall fails the test where a connection waited too long since the last look, and says what was lost or late.
func (f *flows) checkStall(t testing.TB, l *laboratory) {
	t.Helper()
	waited, allowed := f.stall(t)
	sentAgain := f.retransmissions(t)
	if waited > allowed {
		time.Sleep(time.Second) // what forwarders tell is up to a second old
		t.Errorf("a connection waited %s for an answer, on this machine %s are allowed; %d segments were sent again; meanwhile:\n%s",
			waited, allowed, sentAgain-f.sentAgain, l.losses(t).since(f.lost))
	}
	f.lost, f.sentAgain = l.losses(t), sentAgain
}

// retransmissions is how many segments the clients sent again (TCP_INFO).
func (f *flows) retransmissions(t testing.TB) uint32 {
	t.Helper()
	var sum uint32
	for _, one := range f.all {
		raw, err := one.connection.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.Control(func(descriptor uintptr) {
			if information, err := unix.GetsockoptTCPInfo(int(descriptor), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				sum += information.Total_retrans
			}
		})
	}
	return sum
}

// answers is how many lines came back over all connections.
func (f *flows) answers() int64 {
	var sum int64
	for _, one := range f.all {
		sum += one.answers.Load()
	}
	return sum
}

// silent are the connections that have not had three answers within some time from now. It waits no longer than it must.
func (f *flows) silent(within time.Duration) []*flow {
	before := map[*flow]int64{}
	for _, one := range f.all {
		before[one] = one.answers.Load()
	}
	waits := func(one *flow) bool { return one.answers.Load() < before[one]+3 }
	for deadline := time.Now().Add(within); slices.ContainsFunc(f.all, waits) && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
	return slices.DeleteFunc(slices.Clone(f.all), func(one *flow) bool { return !waits(one) })
}

// goOn says whether the connections came to so many answers each, on average, since there were before.
func (f *flows) goOn(before int64, each int) error {
	if got, want := f.answers()-before, int64(each*len(f.all)); got < want {
		return fmt.Errorf("connections stand still: %d answers, want %d", got, want)
	}
	return nil
}

// locals are the clients' ports.
func (f *flows) locals() map[uint16]bool {
	ports := map[uint16]bool{}
	for _, one := range f.all {
		ports[one.Local.Port()] = true
	}
	return ports
}

// connectOnce opens a connection, exchanges one line and closes it; it returns the local port.
func (l *laboratory) connectOnce(machine string, server netip.AddrPort) (uint16, error) {
	return l.connectWithin(machine, server, patience)
}

// connectWithin is connectOnce with a limit of time.
func (l *laboratory) connectWithin(machine string, server netip.AddrPort, limit time.Duration) (uint16, error) {
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		return 0, err
	}
	defer namespace.Close()
	var connection net.Conn
	err = namespace.Do(func() (err error) {
		dialer := net.Dialer{Timeout: limit, FallbackDelay: -1}
		connection, err = dialer.Dial("tcp", server.String())
		return err
	})
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(connection, "hello\n"); err != nil {
		return 0, err
	}
	if answer, err := bufio.NewReader(connection).ReadString('\n'); err != nil || answer != "hello\n" {
		return 0, fmt.Errorf("answer %q, %v", answer, err)
	}
	return connection.LocalAddr().(*net.TCPAddr).AddrPort().Port(), nil
}
