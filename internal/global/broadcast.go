package global

import "sync"

// broadcast tells any number of readers that something changed; who is busy is told once.
type broadcast struct {
	mu      sync.Mutex
	readers map[chan struct{}]bool
}

func newBroadcast() *broadcast { return &broadcast{readers: map[chan struct{}]bool{}} }

func (b *broadcast) tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.readers {
		select {
		case r <- struct{}{}:
		default:
		}
	}
}

func (b *broadcast) listen() (<-chan struct{}, func()) {
	r := make(chan struct{}, 1)
	b.mu.Lock()
	b.readers[r] = true
	b.mu.Unlock()
	return r, func() {
		b.mu.Lock()
		delete(b.readers, r)
		b.mu.Unlock()
	}
}

// Changes tells when something that List shows may have changed, until stop is called.
func (g *Global) Changes() (changed <-chan struct{}, stop func()) { return g.changes.listen() }
