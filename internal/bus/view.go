package bus

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
)

// The view bucket holds, under <site>.<key>, what other sites publish, with the publisher's revision and time as headers,
// and under _.cursor.<site>.<prefix's hash> how far the copy of each prefix is. No site can be called "_".
const (
	epochHeader    = "Switchboard-Epoch"
	revisionHeader = "Switchboard-Revision"
	timeHeader     = "Switchboard-Time"
)

func cursorKey(site, prefix string) string {
	sum := sha256.Sum256([]byte(prefix))
	return "_.cursor." + site + "." + hex.EncodeToString(sum[:12])
}

func viewEvent(ch change, site, key string) Event {
	e := Event{Kind: kindOf(ch), Site: site, Key: key, Value: ch.value}
	e.Revision, e.Time = publisherStamp(ch.header)
	return e
}

// publisherStamp reads a view message's headers; a message without them, which only a foreign hand can have written, has
// revision 0.
func publisherStamp(h nats.Header) (uint64, time.Time) {
	revision, _ := strconv.ParseUint(h.Get(revisionHeader), 10, 64)
	nanoseconds, _ := strconv.ParseInt(h.Get(timeHeader), 10, 64)
	return revision, time.Unix(0, nanoseconds)
}
