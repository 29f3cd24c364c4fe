package bus

import "time"

const (
	paceStart   = 16 << 10
	paceMinimum = 8 << 10
	paceStep    = 16 << 10
	// paceQueue is how much longer than the shortest round trip a batch may take before the window shrinks: what waits
	// in the network is stale when it arrives, what waits here is replaced by its last value.
	paceQueue = 30 * time.Millisecond
)

// pace bounds the bytes on their way to a peer, so that the path's queues stay short: while the window is what holds
// batches back it doubles per round trip until round trips first grow, and from then on grows by a step; when round
// trips grow it shrinks by a quarter. (A delay-based control in the manner of TCP Vegas. Small batches at the start let
// it see the path's own round trip.)
type pace struct {
	window, limit int
	inFlight      int
	next          uint64 // number of the next batch
	batches       []sentBatch
	shortest      time.Duration
	adjusted      uint64 // the window changes once per round trip: not before a batch sent after the last change is back
	held          bool   // the window has held something back since then
	slowed        bool   // round trips have grown once
}

type sentBatch struct {
	number uint64
	size   int
	at     time.Time
}

// newPace makes a pace with the largest window, in bytes, that the peer allows.
func newPace(limit int) *pace {
	return &pace{window: min(paceStart, limit), limit: limit, next: 1}
}

// room is how many bytes may be sent now; something may always be sent when nothing is on its way.
func (p *pace) room() int {
	if p.inFlight == 0 {
		return max(1, p.window)
	}
	if p.inFlight >= p.window {
		p.held = true
		return 0
	}
	return p.window - p.inFlight
}

// batch is how large the next batch may be: several to a window, so that one is being stored while the next is on its way.
func (p *pace) batch() int {
	return min(p.room(), max(p.window/4, paceMinimum/4), batchBytes)
}

func (p *pace) sent(size int, now time.Time) uint64 {
	number := p.next
	p.next++
	p.inFlight += size
	p.batches = append(p.batches, sentBatch{number, size, now})
	return number
}

// credit takes off the batches up to a number, and adjusts the window by how long the last of them took.
func (p *pace) credit(number uint64, now time.Time) {
	for len(p.batches) > 0 && p.batches[0].number <= number {
		b := p.batches[0]
		p.batches = p.batches[1:]
		p.inFlight -= b.size
		took := now.Sub(b.at)
		if p.shortest == 0 || took < p.shortest {
			p.shortest = took
		}
		if b.number < p.adjusted {
			continue
		}
		switch {
		case took > p.shortest+p.shortest/8+paceQueue:
			p.window, p.slowed = max(paceMinimum, p.window-p.window/4), true
		case p.held && !p.slowed:
			p.window = min(p.limit, 2*p.window)
		case p.held:
			p.window = min(p.limit, p.window+paceStep)
		default:
			continue
		}
		p.adjusted, p.held = p.next, false
	}
}

// oldest is how long the oldest batch on its way has been so.
func (p *pace) oldest(now time.Time) time.Duration {
	if len(p.batches) == 0 {
		return 0
	}
	return now.Sub(p.batches[0].at)
}
