package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// stamp identifies a value of a publisher's bucket.
type stamp struct{ epoch, revision uint64 }

// cursor is how far the copy of one prefix is, as stored behind what it covers.
type cursor struct {
	Prefix   string `json:"prefix"`
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
	AsOf     uint64 `json:"as_of"`
	// Boot is the machine's boot in which this was written. The view is not synced at every write: what a process wrote
	// outlives the process, in order, but after another boot later writes may be there and earlier ones not, and then
	// cursors tell nothing.
	Boot string `json:"boot"`
	// Refused is the publisher's reason for not giving the prefix; "" if it gives it.
	Refused string `json:"refused,omitempty"`
}

// bootID identifies the machine's boot; where the system does not tell, every process is its own.
var bootID = func() string {
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		return strings.TrimSpace(string(id))
	}
	return newID()
}()

// viewWriter writes one site's part of the view. Writes are sent at once and confirmed together by flush; they are
// stored in the order of the calls.
type viewWriter struct {
	c       *Connection
	site    string
	pending []jetstream.PubAckFuture
}

func (w *viewWriter) put(epoch uint64, c batchChange) error {
	m := w.message(w.site + "." + c.key)
	m.Data = c.value
	m.Header.Set(epochHeader, strconv.FormatUint(epoch, 10))
	m.Header.Set(revisionHeader, strconv.FormatUint(c.revision, 10))
	m.Header.Set(timeHeader, strconv.FormatUint(c.time, 10))
	return w.send(m)
}

func (w *viewWriter) delete(key string, revision, time uint64) error {
	m := w.tombstone(w.site + "." + key)
	m.Header.Set(revisionHeader, strconv.FormatUint(revision, 10))
	m.Header.Set(timeHeader, strconv.FormatUint(time, 10))
	return w.send(m)
}

func (w *viewWriter) putCursor(c cursor) error {
	m := w.message(cursorKey(w.site, c.Prefix))
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("cursor of %s: %w", w.site, err)
	}
	m.Data = text
	return w.send(m)
}

func (w *viewWriter) deleteCursor(prefix string) error {
	return w.send(w.tombstone(cursorKey(w.site, prefix)))
}

func (w *viewWriter) message(key string) *nats.Msg {
	return nats.NewMsg("$KV." + viewBucket + "." + key)
}

func (w *viewWriter) tombstone(key string) *nats.Msg {
	m := w.message(key)
	markDeleted(m.Header)
	return m
}

func (w *viewWriter) send(m *nats.Msg) error {
	ack, err := w.c.js.PublishMsgAsync(m)
	if err != nil {
		return fmt.Errorf("write view of %s: %w", w.site, err)
	}
	w.pending = append(w.pending, ack)
	return nil
}

// flush waits until everything is stored.
func (w *viewWriter) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestPatience)
	defer cancel()
	pending := w.pending
	w.pending = nil
	for _, ack := range pending {
		select {
		case <-ack.Ok():
		case err := <-ack.Err():
			return fmt.Errorf("write view of %s: %w", w.site, err)
		case <-ctx.Done():
			return fmt.Errorf("write view of %s: %w", w.site, ctx.Err())
		}
	}
	return nil
}
