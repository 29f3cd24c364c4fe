package bus

import "time"

const (
	paceStart   = 64 << 10
	paceMinimum = 16 << 10
	paceStep    = 16 << 10
	// paceQueue is how much longer than the shortest round trip a batch may take before the window shrinks: what waits
	// in the network is stale when it arrives, what waits here is replaced by its last value.
	paceQueue = 30 * time.Millisecond
)

// pace bounds the bytes on their way to a peer, so that the path's queues stay short: the window grows by a step per
// round trip while it is what holds batches back, and shrinks by a quarter when round trips grow. (A delay-based
// control in the manner of TCP Vegas.)
type pace struct {
	window, limit int
	inFlight      int
	next          uint64 // number of the next batch
	batches       []sentBatch
	shortest      time.Duration
	adjusted      uint64 // the window changes once per round trip: not before a batch sent after the last change is back
	held          bool   // the window has held something back since then
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
		case took > p.shortest+p.shortest/4+paceQueue:
			p.window = max(paceMinimum, p.window-p.window/4)
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
