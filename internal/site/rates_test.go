package site

import (
	"maps"
	"math"
	"testing"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

func report(incarnation uint64, seconds int64, packets, bytes uint64) *rules.Status {
	return &rules.Status{Site: "a", Forwarder: "f1", Incarnation: incarnation, TimeUnixMs: 1000 * seconds, Stages: []*rules.StageCounters{
		{ChainLabel: 16, EgressLabel: 100, Stage: 1, Direction: rules.Direction_DIRECTION_FORWARD, Packets: packets, Bytes: bytes, OriginBytes: bytes / 2},
		{ChainLabel: 90, EgressLabel: 100, Stage: 1, Direction: rules.Direction_DIRECTION_FORWARD, Packets: 5},
	}}
}

func TestRatesAreDifferencesOfReports(t *testing.T) {
	r := rates{}
	var last *rules.Status
	for _, c := range []struct {
		name    string
		status  *rules.Status
		packets uint64
		pps     float64
		mbps    float64
		origin  float64
	}{
		{"first", report(1, 10, 100, 1000), 100, 0, 0, 0},
		{"two seconds later", report(1, 12, 300, 251000), 300, 100, 1, 0.5},
		{"the same again", report(1, 12, 300, 251000), 300, 100, 1, 0.5},
		{"idle", report(1, 13, 300, 251000), 300, 0, 0, 0},
		{"a forwarder that began anew", report(2, 14, 10, 1000), 10, 0, 0, 0},
		{"and goes on", report(2, 15, 20, 126000), 20, 10, 1, 0.5},
		{"a stage that began anew", report(2, 16, 4, 125000), 4, 4, 1, 0.5},
	} {
		r.hear(last, c.status)
		last = c.status
		m := r.measurement("a", ChainKey{"acme", "web"}, []uint32{16}, map[string]*rules.Status{"f1": last})
		s := m.Stages[0]
		if len(m.Stages) != 1 || s.Packets != c.packets || s.PacketsPerSecond != c.pps || math.Abs(s.Mbps-c.mbps) > 1e-9 ||
			math.Abs(s.OriginMbps-c.origin) > 1e-9 {
			t.Errorf("%s: %v", c.name, m.Stages)
		}
	}
	if m := r.measurement("a", ChainKey{"acme", "mail"}, []uint32{20}, nil); m != nil {
		t.Errorf("a chain without counters: %v", m)
	}
}

// TestDropsOfAStageAreSummedByReason over the site's forwarders and the chain's versions.
func TestDropsOfAStageAreSummedByReason(t *testing.T) {
	r, statuses := rates{}, map[string]*rules.Status{}
	for _, forwarder := range []string{"f1", "f2"} {
		status := report(1, 10, 100, 1000)
		status.Forwarder = forwarder
		status.Stages[0].Drops = map[string]uint64{"no_target": 2, forwarder: 1}
		status.Stages[1].Drops = map[string]uint64{"hop_gone": 9}
		r.hear(nil, status)
		statuses[forwarder] = status
	}
	m := r.measurement("a", ChainKey{"acme", "web"}, []uint32{16}, statuses)
	want := map[string]uint64{"no_target": 4, "f1": 1, "f2": 1}
	if len(m.Stages) != 1 || !maps.Equal(m.Stages[0].Drops, want) {
		t.Errorf("%v, want %v", m.Stages, want)
	}
}

func TestLeastLatencyTakesTheShortestWay(t *testing.T) {
	link := func(from, to string, ms float64) *control.LinkRecord {
		return &control.LinkRecord{Spec: &api.LinkSpec{From: from, To: to, LatencyMs: ms}}
	}
	latency := leastLatency([]*control.LinkRecord{link("a", "b", 10), link("b", "c", 5), link("a", "c", 20), link("d", "e", 1)})
	for _, c := range []struct {
		from, to string
		want     float64
	}{{"a", "c", 15}, {"c", "a", 15}, {"a", "a", 0}, {"a", "d", math.Inf(1)}, {"x", "x", 0}, {"d", "e", 1}} {
		if got := latency(c.from, c.to); got != c.want {
			t.Errorf("%s to %s: %v, want %v", c.from, c.to, got, c.want)
		}
	}
}
