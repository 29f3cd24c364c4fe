package bus

import (
	"context"
	"encoding/json"
	"sync"
	"time"
)

const (
	wantSubject = "bus.want"
	// wantRenewal is how often an agent repeats what it wants; the site process forgets it after wantLife.
	wantRenewal = time.Minute
	wantLife    = 5 * time.Minute
)

// want is one prefix of another site's published state.
type want struct {
	Site   string `json:"site"`
	Prefix string `json:"prefix"`
}

// wantMessage is all that one connection wants; it replaces what the connection said before.
type wantMessage struct {
	Connection string `json:"connection"`
	Wants      []want `json:"wants"`
}

// wantedSet counts a connection's subscriptions and keeps the site process informed of them.
type wantedSet struct {
	c       *Connection
	id      string
	changed chan struct{}

	mu      sync.Mutex
	started bool
	counts  map[want]int
}

func newWantedSet(c *Connection) *wantedSet {
	return &wantedSet{c: c, id: newID(), changed: make(chan struct{}, 1), counts: map[want]int{}}
}

// add counts one subscription and returns what ends it.
func (w *wantedSet) add(site, prefix string) (release func()) {
	at := want{site, prefix}
	w.mu.Lock()
	w.counts[at]++
	if !w.started {
		w.started = true
		w.c.run(w.inform)
	}
	w.mu.Unlock()
	w.signal()
	return func() {
		w.mu.Lock()
		if w.counts[at]--; w.counts[at] == 0 {
			delete(w.counts, at)
		}
		w.mu.Unlock()
		w.signal()
	}
}

func (w *wantedSet) signal() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *wantedSet) message() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := wantMessage{Connection: w.id, Wants: make([]want, 0, len(w.counts))}
	for at := range w.counts {
		m.Wants = append(m.Wants, at)
	}
	text, err := json.Marshal(m)
	if err != nil {
		panic(err) // strings always encode
	}
	return text
}

// inform repeats the set when it changes, when the server came back, and now and then.
func (w *wantedSet) inform() {
	renewal := time.NewTicker(wantRenewal)
	defer renewal.Stop()
	for {
		disturbed := w.c.disturbance()
		ctx, cancel := context.WithTimeout(w.c.life, requestPatience)
		_, err := w.c.nc.RequestWithContext(ctx, wantSubject, w.message())
		cancel()
		retry := time.Duration(1<<62 - 1)
		if err != nil {
			retry = 2 * retryWait
		}
		select {
		case <-w.c.life.Done():
			return
		case <-w.changed:
		case <-disturbed:
		case <-renewal.C:
		case <-time.After(retry):
		}
	}
}
