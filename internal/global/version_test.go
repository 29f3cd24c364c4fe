package global

import (
	"maps"
	"testing"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// A site's number in service path identifiers stays while the version lives, and there are no more than fifteen.
func TestNshNumbersStay(t *testing.T) {
	edges := func(labels ...uint32) []*control.PlannedEdge {
		var all []*control.PlannedEdge
		for _, label := range labels {
			all = append(all, &control.PlannedEdge{EgressLabel: label})
		}
		return all
	}
	first := nshNumbers(nil, edges(30, 20, 30))
	if want := map[uint32]uint32{30: 1, 20: 2}; !maps.Equal(first, want) {
		t.Errorf("numbers are %v, want %v", first, want)
	}
	second := nshNumbers(first, edges(10, 20))
	if want := map[uint32]uint32{30: 1, 20: 2, 10: 3}; !maps.Equal(second, want) {
		t.Errorf("numbers are %v, want %v", second, want)
	}
	var many []uint32
	for label := uint32(100); label < 120; label++ {
		many = append(many, label)
	}
	all := nshNumbers(second, edges(many...))
	if len(all) != 15 || all[111] != 15 || all[112] != 0 {
		t.Errorf("numbers are %v", all)
	}
}
