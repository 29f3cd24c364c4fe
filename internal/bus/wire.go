package bus

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What subscriptions carry across a link. Numbers are unsigned varints (LEB128, at most 64 bits); a text or value is its
// length and its bytes; a list is its length and its elements; a truth value is the number 0 or 1.
//
//	open request    session text │ window bytes │ list of (prefix text │ epoch │ revision │ time)
//	open reply      epoch │ list of (status │ text)      one per prefix: 0 resumed, 1 from the beginning, 2 refused (why)
//	batch           number │ complete │ revision │ time │ list of (deleted │ key text │ revision │ time │ value)
//	credit          session text │ number                the batch that was taken, and all before
//	close           session text
//
// Revision and time of a prefix, and of a batch, say how far the subscriber's copy is: it holds every change up to that
// revision, as of that time (nanoseconds of the publisher's clock). They mean something within one epoch only: the life
// of the publisher's bucket.

// errMalformed is wrapped by every decoding error.
var errMalformed = errors.New("bus: malformed message")

// position is how far a copy is.
type position struct {
	epoch    uint64
	revision uint64
	asOf     uint64
}

type openRequest struct {
	session  string
	window   uint64
	prefixes []prefixPosition
}

type prefixPosition struct {
	prefix string
	at     position
}

// How a publisher takes up a prefix.
const (
	prefixResumed = iota
	prefixWhole   // from the beginning: what is not sent until the first complete batch does not exist
	prefixRefused
)

type openReply struct {
	epoch    uint64
	prefixes []prefixStatus
}

type prefixStatus struct {
	status uint64
	reason string
}

// batch is some changes, each the last of its key, in no order.
type batch struct {
	number   uint64 // 1, 2, 3 …
	complete bool   // the copy is current
	revision uint64
	asOf     uint64
	changes  []batchChange
}

type batchChange struct {
	deleted  bool
	key      string
	revision uint64
	time     uint64
	value    []byte
}

type encoder struct{ b []byte }

func (e *encoder) number(n uint64) { e.b = binary.AppendUvarint(e.b, n) }

func (e *encoder) truth(v bool) {
	if v {
		e.number(1)
	} else {
		e.number(0)
	}
}

func (e *encoder) text(s string) {
	e.number(uint64(len(s)))
	e.b = append(e.b, s...)
}

func (m openRequest) encode() []byte {
	var e encoder
	e.text(m.session)
	e.number(m.window)
	e.number(uint64(len(m.prefixes)))
	for _, p := range m.prefixes {
		e.text(p.prefix)
		e.number(p.at.epoch)
		e.number(p.at.revision)
		e.number(p.at.asOf)
	}
	return e.b
}

func (m openReply) encode() []byte {
	var e encoder
	e.number(m.epoch)
	e.number(uint64(len(m.prefixes)))
	for _, p := range m.prefixes {
		e.number(p.status)
		e.text(p.reason)
	}
	return e.b
}

func (m batch) encode() []byte {
	var e encoder
	e.number(m.number)
	e.truth(m.complete)
	e.number(m.revision)
	e.number(m.asOf)
	e.number(uint64(len(m.changes)))
	for _, c := range m.changes {
		e.truth(c.deleted)
		e.text(c.key)
		e.number(c.revision)
		e.number(c.time)
		e.text(string(c.value))
	}
	return e.b
}

// decoder reads until its first error, and zeros from then on.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", errMalformed, what)
	}
	d.b = nil
}

func (d *decoder) number() uint64 {
	n, size := binary.Uvarint(d.b)
	if size <= 0 {
		d.fail("number")
		return 0
	}
	d.b = d.b[size:]
	return n
}

func (d *decoder) truth() bool {
	n := d.number()
	if n > 1 {
		d.fail("truth value")
	}
	return n == 1
}

func (d *decoder) bytes() []byte {
	n := d.number()
	if n > uint64(len(d.b)) {
		d.fail("length")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) text() string { return string(d.bytes()) }

// count reads a list's length; elements take at least the given number of bytes each, so a lie cannot cost memory.
func (d *decoder) count(least int) int {
	n := d.number()
	if n > uint64(len(d.b)/least) {
		d.fail("list length")
		return 0
	}
	return int(n)
}

func (d *decoder) end() error {
	if len(d.b) > 0 {
		d.fail("bytes left over")
	}
	return d.err
}

func decodeOpenRequest(b []byte) (openRequest, error) {
	d := decoder{b: b}
	m := openRequest{session: d.text(), window: d.number()}
	for range d.count(4) {
		m.prefixes = append(m.prefixes, prefixPosition{d.text(), position{d.number(), d.number(), d.number()}})
	}
	return m, d.end()
}

func decodeOpenReply(b []byte) (openReply, error) {
	d := decoder{b: b}
	m := openReply{epoch: d.number()}
	for range d.count(2) {
		m.prefixes = append(m.prefixes, prefixStatus{d.number(), d.text()})
	}
	return m, d.end()
}

func decodeBatch(b []byte) (batch, error) {
	d := decoder{b: b}
	m := batch{number: d.number(), complete: d.truth(), revision: d.number(), asOf: d.number()}
	for range d.count(5) {
		m.changes = append(m.changes, batchChange{d.truth(), d.text(), d.number(), d.number(), d.bytes()})
	}
	return m, d.end()
}

// encodeCredit and encodeClose are the two short messages of a session; close is a credit for nothing.
func encodeCredit(session string, number uint64) []byte {
	var e encoder
	e.text(session)
	e.number(number)
	return e.b
}

func decodeCredit(b []byte) (session string, number uint64, err error) {
	d := decoder{b: b}
	session, number = d.text(), d.number()
	return session, number, d.end()
}
