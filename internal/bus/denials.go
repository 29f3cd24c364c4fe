package bus

import (
	"context"
	"strings"
	"sync"
)

// denials brings the server's refusals to those whom they concern. NATS does not answer a publication that an agent may
// not make: it reports the subject on the side, and the caller would wait in vain.
type denials struct {
	mu      sync.Mutex
	waiting map[*denialWatch]struct{}
}

type denialWatch struct {
	parts  []string
	cancel context.CancelFunc
	denied bool
}

// watch cancels a call when a subject with one of the parts is refused, until release, which reports whether that
// happened.
func (d *denials) watch(cancel context.CancelFunc, parts ...string) (release func() bool) {
	w := &denialWatch{parts: parts, cancel: cancel}
	d.mu.Lock()
	if d.waiting == nil {
		d.waiting = map[*denialWatch]struct{}{}
	}
	d.waiting[w] = struct{}{}
	d.mu.Unlock()
	return func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.waiting, w)
		return w.denied
	}
}

// tell takes the server's words, which hold the subject in quotation marks.
func (d *denials) tell(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.waiting {
		for _, part := range w.parts {
			if strings.Contains(text, part) {
				w.denied = true
				w.cancel()
			}
		}
	}
}
