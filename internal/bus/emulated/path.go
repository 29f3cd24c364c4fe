// Package emulated makes wide-area paths on one machine: TCP proxies that delay, limit the rate, count what passes, and
// can be cut and healed. For tests and measurements.
package emulated

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Pipe is the sending side of a site's connection to the wide area, shared by all paths that leave the site. Its queue
// is a drop-tail router's with a sender that never overflows it: when it is full, senders wait.
type Pipe struct {
	bitsPerSecond float64
	queue         time.Duration

	mu   sync.Mutex
	free time.Time // when everything accepted so far has been sent
}

// NewPipe makes a pipe of a rate in bit/s (0: without limit) that holds at most so much time's worth of bytes.
func NewPipe(bitsPerSecond float64, queue time.Duration) *Pipe {
	return &Pipe{bitsPerSecond: bitsPerSecond, queue: queue}
}

// send waits for room for n bytes and returns when the last of them has left.
func (p *Pipe) send(n int) time.Time {
	now := time.Now()
	if p == nil || p.bitsPerSecond == 0 {
		return now
	}
	p.mu.Lock()
	if p.free.Before(now) {
		p.free = now
	}
	p.free = p.free.Add(time.Duration(float64(n) * 8 / p.bitsPerSecond * 1e9))
	leaves := p.free
	p.mu.Unlock()
	if wait := time.Until(leaves) - p.queue; wait > 0 {
		time.Sleep(wait)
	}
	return leaves
}

// Path is a way to one address: what is dialled at Address arrives there.
type Path struct {
	target   string
	delay    time.Duration
	there    *Pipe
	back     *Pipe
	listener net.Listener
	frozen   chan struct{} // closed while the path carries bytes

	mu          sync.Mutex
	connections map[net.Conn]bool
	cut         bool
	closed      bool

	// BytesThere and BytesBack count what passed towards the target and back, headers of TCP and IP not included.
	BytesThere, BytesBack atomic.Int64
}

// NewPath listens on a loopback address and forwards to the target with a one-way delay, over the two sites' pipes,
// either of which may be nil.
func NewPath(target string, delay time.Duration, there, back *Pipe) (*Path, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("emulated path to %s: %w", target, err)
	}
	p := &Path{target: target, delay: delay, there: there, back: back, listener: l, connections: map[net.Conn]bool{},
		frozen: make(chan struct{})}
	close(p.frozen)
	go p.accept()
	return p, nil
}

// Address is where the path begins.
func (p *Path) Address() string { return p.listener.Addr().String() }

// Cut breaks the path: connections end and new ones are refused, until Heal.
func (p *Path) Cut() { p.set(true) }

// Heal makes the path whole again.
func (p *Path) Heal() { p.set(false) }

func (p *Path) set(cut bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = cut
	if cut {
		p.endAll()
	}
}

// Freeze stops all bytes without ending connections, as a failing route does, until Thaw.
func (p *Path) Freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
}

// Thaw ends what Freeze began.
func (p *Path) Thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.frozen)
}

// Close ends the path.
func (p *Path) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.listener.Close()
	p.endAll()
}

func (p *Path) endAll() {
	for c := range p.connections {
		c.Close()
	}
	clear(p.connections)
}

// add takes part in cutting; false if the path is cut already.
func (p *Path) add(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cut || p.closed {
		c.Close()
		return false
	}
	p.connections[c] = true
	return true
}

func (p *Path) remove(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.connections, c)
}

func (p *Path) gate() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

func (p *Path) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		if !p.add(in) {
			continue
		}
		go p.join(in)
	}
}

func (p *Path) join(in net.Conn) {
	out, err := net.Dial("tcp", p.target)
	if err != nil || !p.add(out) {
		p.remove(in)
		return
	}
	go p.carry(in, out, p.there, &p.BytesThere)
	p.carry(out, in, p.back, &p.BytesBack)
}

type chunk struct {
	bytes   []byte
	arrives time.Time
}

// carry moves bytes one way until either end closes. In flight are at most as many chunks as the channel holds.
func (p *Path) carry(from, to net.Conn, pipe *Pipe, count *atomic.Int64) {
	flight := make(chan chunk, 4096)
	go func() {
		defer close(flight)
		for {
			b := make([]byte, 4096)
			n, err := from.Read(b)
			if n > 0 {
				flight <- chunk{b[:n], pipe.send(n).Add(p.delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	broken := false
	for c := range flight {
		if broken {
			continue
		}
		time.Sleep(time.Until(c.arrives))
		<-p.gate()
		if _, err := to.Write(c.bytes); err != nil {
			broken = true
			from.Close()
			continue
		}
		count.Add(int64(len(c.bytes)))
	}
	p.remove(from)
	p.remove(to)
}
