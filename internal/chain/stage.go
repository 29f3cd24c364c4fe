package chain

import "fmt"

// Stage numbers the stretches of a chain of n VNFs from 1 to n+1: stage z lies between the (z-1)-th VNF, or the ingress
// edge, and the z-th VNF, or the egress edge.
type Stage int

// MaximumVnfs is how many VNFs a chain may have: the service index has 8 bits (RFC 8300 section 2.3) and must not reach 0.
const MaximumVnfs = 253

// ServiceIndex is what a packet carries at a stage of a chain of so many VNFs: 255 where it enters, in either direction,
// and one less for each VNF passed (RFC 8300 section 3).
func ServiceIndex(stage Stage, vnfs int, reverse bool) uint8 {
	if reverse {
		return uint8(255 - (vnfs + 1 - int(stage)))
	}
	return uint8(255 - (int(stage) - 1))
}

// StageOf is the inverse of ServiceIndex.
func StageOf(index uint8, vnfs int, reverse bool) (Stage, error) {
	passed := 255 - int(index)
	if passed > vnfs {
		return 0, fmt.Errorf("service index %d: a chain of %d VNFs has 255 down to %d", index, vnfs, 255-vnfs)
	}
	if reverse {
		return Stage(vnfs + 1 - passed), nil
	}
	return Stage(passed + 1), nil
}
