package site

import (
	"cmp"
	"maps"
	"slices"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// stayed tells how many microseconds a share of a forwarder's packets stayed in it at most, all workers together: the bound of
// the bucket that the share ends in, or of the longest bounded one with packets. 0 without packets.
func stayed(status *rules.Status, share float64) float64 {
	packets := map[uint64]uint64{}
	total := uint64(0)
	for _, histogram := range status.GetLatencies() {
		for _, bucket := range histogram.Buckets {
			packets[bucket.BelowNs] += bucket.Packets
			total += bucket.Packets
		}
	}
	// 0 stands for no bound and comes last.
	bounds := slices.SortedFunc(maps.Keys(packets), func(a, b uint64) int { return cmp.Compare(a-1, b-1) })
	counted, longest := uint64(0), uint64(0)
	for _, bound := range bounds {
		if bound != 0 {
			longest = bound
		}
		counted += packets[bound]
		if float64(counted) >= share*float64(total) {
			break
		}
	}
	return float64(longest) / 1e3
}
