package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"
)

// datagrams are UDP flows from one machine to an echo server. Each sends every beat whether it is answered or not, as applications do
// that know nothing of a connection.
type datagrams struct{ all []*datagramFlow }

// datagramFlow is one of them. longest is the longest time between two answers, in nanoseconds.
type datagramFlow struct{ answers, longest atomic.Int64 }

func startDatagrams(t testing.TB, l *laboratory, machine string, server netip.AddrPort, count int) *datagrams {
	t.Helper()
	d := &datagrams{}
	for range count {
		var socket net.Conn
		l.inside(t, machine, func() (err error) {
			socket, err = net.Dial("udp", server.String())
			return err
		})
		one := &datagramFlow{}
		d.all = append(d.all, one)
		done := make(chan struct{})
		t.Cleanup(func() { close(done); socket.Close() })
		go func() {
			tick := time.NewTicker(beat)
			defer tick.Stop()
			for {
				select {
				case <-done:
					return
				case <-tick.C:
					_, _ = socket.Write([]byte("hello")) // lost where nobody takes it, as on any network
				}
			}
		}()
		go func() {
			last := time.Now()
			for buffer := make([]byte, 64); ; {
				select {
				case <-done:
					return
				default:
					if _, err := socket.Read(buffer); err == nil {
						one.longest.Store(max(one.longest.Load(), int64(time.Since(last))))
						one.answers.Add(1)
						last = time.Now()
					}
				}
			}
		}()
	}
	return d
}

// silent is how many flows have no answer within some time from now.
func (d *datagrams) silent(within time.Duration) (count int) {
	before := make([]int64, len(d.all))
	for i, one := range d.all {
		before[i] = one.answers.Load()
	}
	time.Sleep(within)
	for i, one := range d.all {
		if one.answers.Load() == before[i] {
			count++
		}
	}
	return count
}

// allAnswered says how many flows are silent.
func (d *datagrams) allAnswered() error {
	if silent := d.silent(time.Second); silent > 0 {
		return fmt.Errorf("%d of %d flows are silent", silent, len(d.all))
	}
	return nil
}

// waits says how many flows waited for an answer for longer than a time, and the longest that any did.
func (d *datagrams) waits(longer time.Duration) (count int, longest time.Duration) {
	for _, one := range d.all {
		waited := time.Duration(one.longest.Load())
		if waited > longer {
			count++
		}
		longest = max(longest, waited)
	}
	return count, longest
}
