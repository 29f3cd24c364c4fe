package global

import (
	"math"
	"strings"
	"testing"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
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
	if d == nil || math.Abs(float64(d.demand.Forward)-250) > 0.1 || math.Abs(float64(d.demand.Reverse)-50) > 0.1 {
		t.Fatalf("demand %v, want the traffic and a quarter", d)
	}
	if again := m.replaces(m.config, estimate, estimate); again != nil {
		t.Fatalf("planned again at once for %v", again)
	}
	m.pass(3*time.Minute, "a", chain.Demand{Forward: 210, Reverse: 38})
	if again := m.replaces(m.config, estimate, d.demand); again != nil {
		t.Fatalf("planned again for a small change: %v", again)
	}
}

func TestNewEstimateCountsUntilItWasMeasuredAgain(t *testing.T) {
	m, estimate := newMeter(), chain.Demand{Forward: 1000, Reverse: 1000}
	m.renew(m.now)
	if !m.began.IsZero() {
		t.Fatal("what was never measured has begun")
	}
	m.pass(10*time.Minute, "a", chain.Demand{Forward: 1, Reverse: 1})
	m.renew(m.now)
	if d, counts := m.settled(m.config, estimate); counts {
		t.Fatalf("the estimate is new, and %v is planned for", d)
	}
	m.pass(3*time.Minute, "a", chain.Demand{Forward: 400, Reverse: 1})
	d, counts := m.settled(m.config, estimate)
	if !counts || d.Forward < 400 || d.Reverse != 100 {
		t.Fatalf("demand %v, %v", d, counts)
	}
}

func TestIdleChainKeepsAFloor(t *testing.T) {
	m, estimate := newMeter(), chain.Demand{Forward: 100, Reverse: 50}
	m.pass(10*time.Minute, "a", chain.Demand{})
	d := m.replaces(m.config, estimate, estimate)
	if d == nil || d.demand.Forward != 10 || d.demand.Reverse != 5 {
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

// A measurement that a site publishes leads to a plan for it: the chain shows what was measured and what is planned for, the
// participants hold what that needs, and the event says both. A chain that is idle keeps a tenth of the estimate.
func TestMeasuredTrafficLeadsToANewPlan(t *testing.T) {
	p := standard(t)
	p.config.Measure = MeasurePolicy{Smoothing: time.Nanosecond, Settle: 100 * time.Millisecond, Interval: 200 * time.Millisecond}
	p.stop()
	p.startGlobal()
	p.apply(webChain)
	label := p.awaitPhase("acme", "web", active).Status.Routes[0].ChainLabel
	if planned := p.chain("acme", "web").Status.Planned; planned.GetForwardMbps() != 50 || planned.GetReverseMbps() != 50 {
		t.Fatalf("before anything is measured the plan is for %v, want the estimate", planned)
	}
	settle := func(forward, reverse, plannedForward, plannedReverse float64) {
		t.Helper()
		office := p.sites["office"].connection.Published()
		packets := uint64(0)
		p.await("the plan is for what was measured", func() bool {
			packets++
			if err := put(testContext(t), office, bus.Key("measurement", "acme", "web"), &control.Measurement{Site: "office", Customer: "acme",
				Chain: "web", Stages: []*control.StageMeasurement{{ChainLabel: label, Stage: 1, Packets: packets, OriginMbps: forward},
					{ChainLabel: label, Stage: 2, Reverse: true, Packets: packets, OriginMbps: reverse}}}); err != nil {
				t.Fatal(err)
			}
			p.g.mu.Lock()
			p.g.workers[chain.Key{Kind: chain.KindChain, Customer: "acme", Name: "web"}].kick()
			p.g.mu.Unlock()
			status := p.chain("acme", "web").Status
			held := 0.0
			for _, r := range p.hq.reservations("vnf.firewall") {
				for _, a := range r.GetPrepare().GetAllocations() {
					for _, l := range a.Loads {
						held += l.Load
					}
				}
			}
			near := func(a, b float64) bool { return math.Abs(a-b) < 0.5 }
			return near(status.Planned.GetForwardMbps(), plannedForward) && near(status.Planned.GetReverseMbps(), plannedReverse) &&
				near(status.Measured.GetForwardMbps(), forward) && near(status.Measured.GetReverseMbps(), reverse) &&
				near(held, 2*(plannedForward+plannedReverse)) && status.Phase == active
		})
	}
	settle(120, 8, 150, 10)
	settle(0, 0, 5, 5)
	told := false
	for _, e := range p.g.Events(chain.KindChain, "acme", "web", 0) {
		told = told || e.Reason == "Replanning" && strings.HasPrefix(e.Message, "measured traffic is 0 + 0 Mbit/s; the plan is for 5 + 5 Mbit/s instead of 150 + 10 Mbit/s: ")
	}
	if !told {
		t.Errorf("no event says what was measured and what is planned for: %v", p.g.Events(chain.KindChain, "acme", "web", 0))
	}
}
