package chain

import "fmt"

// Label is the value of an MPLS label (RFC 3032): 20 bits, of which 0 to 15 are reserved.
type Label uint32

// Ranges of labels. Site and chain labels never meet in one position of a packet; they are kept apart all the same, so
// that a capture is read without doubt.
const (
	FirstSiteLabel  Label = 16
	LastSiteLabel   Label = 65535
	FirstChainLabel Label = 65536
	LastChainLabel  Label = 1<<20 - 2
)

// IsChain reports whether the label may name a chain version: even, the reverse direction being the next.
func (l Label) IsChain() bool { return l >= FirstChainLabel && l <= LastChainLabel && l%2 == 0 }

// IsSite reports whether the label may name an egress site.
func (l Label) IsSite() bool { return l >= FirstSiteLabel && l <= LastSiteLabel }

// Reverse is the label of packets from egress to ingress.
func (l Label) Reverse() Label { return l | 1 }

// Forward is the label of packets from ingress to egress.
func (l Label) Forward() Label { return l &^ 1 }

// NextChainLabel is the first free chain label after one that was given last, going round at the end: a label just
// released rests as long as possible. It fails when all are taken.
func NextChainLabel(last Label, taken func(Label) bool) (Label, error) {
	const count = (LastChainLabel-FirstChainLabel)/2 + 1
	if !last.IsChain() {
		last = LastChainLabel
	}
	l := last
	for range count {
		if l += 2; l > LastChainLabel {
			l = FirstChainLabel
		}
		if !taken(l) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("all %d chain labels are taken; delete chains or let draining versions end", count)
}

// NextSiteLabel is the lowest free site label.
func NextSiteLabel(taken func(Label) bool) (Label, error) {
	for l := FirstSiteLabel; l <= LastSiteLabel; l++ {
		if !taken(l) {
			return l, nil
		}
	}
	return 0, fmt.Errorf("all %d site labels are taken; delete sites", LastSiteLabel-FirstSiteLabel+1)
}
