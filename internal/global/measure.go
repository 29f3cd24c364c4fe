package global

import (
	"fmt"
	"math"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// MeasurePolicy says how measured traffic replaces the customer's estimate. Zero values take the defaults.
type MeasurePolicy struct {
	// Smoothing is the time constant of the average. Default 30 s.
	Smoothing time.Duration
	// Settle is how long a chain is measured before the average counts. Default 2 min.
	Settle time.Duration
	// Headroom multiplies the average: reservations are for what may come. Default 1.25.
	Headroom float64
	// Rise and Fall are the ratios to the planned demand beyond which a new plan is made. Defaults 1.2 and 0.5.
	Rise, Fall float64
	// Interval is the least time between two plans for this reason. Default 2 min.
	Interval time.Duration
	// Floor is the least part of the customer's estimate that stays reserved. Default 0.1.
	Floor float64
	// Off keeps the estimate.
	Off bool
}

func (p *MeasurePolicy) defaults() {
	set := func(d *time.Duration, value time.Duration) {
		if *d == 0 {
			*d = value
		}
	}
	set(&p.Smoothing, 30*time.Second)
	set(&p.Settle, 2*time.Minute)
	set(&p.Interval, 2*time.Minute)
	number := func(n *float64, value float64) {
		if *n == 0 {
			*n = value
		}
	}
	number(&p.Headroom, 1.25)
	number(&p.Rise, 1.2)
	number(&p.Fall, 0.5)
	number(&p.Floor, 0.1)
}

// smallestChange in Mbit/s is worth a new plan.
const smallestChange = 1

// measured is a chain's average traffic.
type measured struct {
	demand chain.Demand
	// bySite is the last report of each site.
	bySite      map[string]chain.Demand
	began, last time.Time
	planned     time.Time
}

// enters is the traffic that a site's report says entered the chain there: forward at stage 1, reverse at the last stage
// of a version with so many VNFs.
func enters(m *control.Measurement, vnfs func(label uint32) (int, bool)) chain.Demand {
	var d chain.Demand
	for _, s := range m.Stages {
		n, known := vnfs(s.ChainLabel)
		switch {
		case !known:
		case !s.Reverse && s.Stage == 1:
			d.Forward += chain.Mbps(s.OriginMbps)
		case s.Reverse && int(s.Stage) == n+1:
			d.Reverse += chain.Mbps(s.OriginMbps)
		}
	}
	return d
}

// add takes a site's report into the average.
func (m *measured) add(policy MeasurePolicy, site string, d chain.Demand, now time.Time) {
	if m.began.IsZero() {
		m.began, m.bySite = now, map[string]chain.Demand{}
	}
	passed := now.Sub(m.last)
	if !m.last.IsZero() && passed > 0 {
		var sum chain.Demand // what was true since the last report
		for _, s := range m.bySite {
			sum.Forward += s.Forward
			sum.Reverse += s.Reverse
		}
		keep := math.Exp(-float64(passed) / float64(policy.Smoothing))
		m.demand.Forward = m.demand.Forward*chain.Mbps(keep) + sum.Forward*chain.Mbps(1-keep)
		m.demand.Reverse = m.demand.Reverse*chain.Mbps(keep) + sum.Reverse*chain.Mbps(1-keep)
	}
	m.last = now
	m.bySite[site] = d
}

// renew begins anew to wait until measurements count: the customer expects other traffic from now on.
func (m *measured) renew(now time.Time) {
	if !m.began.IsZero() {
		m.began = now
	}
}

// settled is the demand to plan for, once the chain was measured long enough.
func (m *measured) settled(config Config, estimate chain.Demand) (chain.Demand, bool) {
	policy := config.Measure
	if policy.Off || m.began.IsZero() || config.Now().Sub(m.began) < policy.Settle {
		return chain.Demand{}, false
	}
	part := func(average, estimate chain.Mbps) chain.Mbps {
		return max(average*chain.Mbps(policy.Headroom), estimate*chain.Mbps(policy.Floor))
	}
	return chain.Demand{Forward: part(m.demand.Forward, estimate.Forward), Reverse: part(m.demand.Reverse, estimate.Reverse)}, true
}

// replacement is a demand that takes the place of the planned one, because of what was measured.
type replacement struct{ measured, demand, before chain.Demand }

// why says what was measured and what is planned for, and how one follows from the other.
func (r replacement) why(policy MeasurePolicy) string {
	return fmt.Sprintf("measured traffic is %s; the plan is for %s instead of %s: %.4g%% more than measured, at least %.4g%% of the estimate",
		mbps(r.measured), mbps(r.demand), mbps(r.before), 100*(policy.Headroom-1), 100*policy.Floor)
}

// mbps writes a demand for people, forward + reverse; less than a thousandth is nothing.
func mbps(d chain.Demand) string {
	round := func(v chain.Mbps) float64 { return math.Round(float64(v)*1000) / 1000 }
	return fmt.Sprintf("%.4g + %.4g Mbit/s", round(d.Forward), round(d.Reverse))
}

// replaces is the demand that a new plan should be made for, nil where the present one is near enough.
func (m *measured) replaces(config Config, estimate, planned chain.Demand) *replacement {
	demand, ok := m.settled(config, estimate)
	now := config.Now()
	if !ok || now.Sub(m.planned) < config.Measure.Interval {
		return nil
	}
	far := func(now, then chain.Mbps) bool {
		return math.Abs(float64(now-then)) >= smallestChange &&
			(now > then*chain.Mbps(config.Measure.Rise) || now < then*chain.Mbps(config.Measure.Fall))
	}
	if !far(demand.Forward, planned.Forward) && !far(demand.Reverse, planned.Reverse) {
		return nil
	}
	m.planned = now
	return &replacement{m.demand, demand, planned}
}
