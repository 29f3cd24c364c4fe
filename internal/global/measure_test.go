package global

import (
	"math"
	"testing"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// meter measures a chain on a clock of its own.
type meter struct {
	measured
	config Config
	now    time.Time
}

func newMeter() *meter {
	m := &meter{now: time.Unix(1000, 0)}
	m.config.Now = func() time.Time { return m.now }
	m.config.defaults()
	return m
}

// pass reports traffic of one site every second.
func (m *meter) pass(d time.Duration, site string, demand chain.Demand) {
	for range int(d / time.Second) {
		m.add(m.config.Measure, site, demand, m.now)
		m.now = m.now.Add(time.Second)
	}
}

func TestMeasuredTrafficReplacesTheEstimate(t *testing.T) {
	m, estimate := newMeter(), chain.Demand{Forward: 100, Reverse: 100}
	m.pass(time.Minute, "a", chain.Demand{Forward: 200, Reverse: 40})
	if d := m.replaces(m.config, estimate, estimate); d != nil {
		t.Fatalf("a minute of measuring already counts: %v", d)
	}
	m.pass(10*time.Minute, "a", chain.Demand{Forward: 200, Reverse: 40})
	d := m.replaces(m.config, estimate, estimate)
	if d == nil || math.Abs(float64(d.Forward)-250) > 0.1 || math.Abs(float64(d.Reverse)-50) > 0.1 {
		t.Fatalf("demand %v, want the traffic and a quarter", d)
	}
	if again := m.replaces(m.config, estimate, estimate); again != nil {
		t.Fatalf("planned again at once for %v", again)
	}
	m.pass(3*time.Minute, "a", chain.Demand{Forward: 210, Reverse: 38})
	if again := m.replaces(m.config, estimate, *d); again != nil {
		t.Fatalf("planned again for a small change: %v", again)
	}
}

func TestIdleChainKeepsAFloor(t *testing.T) {
	m, estimate := newMeter(), chain.Demand{Forward: 100, Reverse: 50}
	m.pass(10*time.Minute, "a", chain.Demand{})
	d := m.replaces(m.config, estimate, estimate)
	if d == nil || d.Forward != 10 || d.Reverse != 5 {
		t.Fatalf("demand %v, want a tenth of the estimate", d)
	}
	small := chain.Demand{Forward: 1}
	if d := m.replaces(m.config, small, small); d != nil {
		t.Fatalf("planned again for less than 1 Mbit/s: %v", d)
	}
}

func TestSitesAddUp(t *testing.T) {
	m := newMeter()
	for range 600 {
		m.add(m.config.Measure, "a", chain.Demand{Forward: 10}, m.now)
		m.add(m.config.Measure, "b", chain.Demand{Forward: 20, Reverse: 5}, m.now)
		m.now = m.now.Add(time.Second)
	}
	if math.Abs(float64(m.demand.Forward)-30) > 0.1 || math.Abs(float64(m.demand.Reverse)-5) > 0.1 {
		t.Fatalf("average %v, want 30 and 5", m.demand)
	}
}

func TestOnlyWhatEntersTheChainCounts(t *testing.T) {
	m := &control.Measurement{Stages: []*control.StageMeasurement{
		{ChainLabel: 65536, Stage: 1, OriginMbps: 10},
		{ChainLabel: 65536, Stage: 2, OriginMbps: 9},
		{ChainLabel: 65536, Stage: 3, Reverse: true, OriginMbps: 7},
		{ChainLabel: 65536, Stage: 1, Reverse: true, OriginMbps: 6},
		{ChainLabel: 70000, Stage: 1, OriginMbps: 100},
	}}
	d := enters(m, func(label uint32) (int, bool) { return 2, label == 65536 })
	if d.Forward != 10 || d.Reverse != 7 {
		t.Fatalf("demand %v, want 10 forward of stage 1 and 7 reverse of stage 3", d)
	}
}
