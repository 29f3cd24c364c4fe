package site

import (
	"cmp"
	"slices"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// rates turns forwarders' counters into rates: what changed between a forwarder's last two reports.
type rates map[string]*forwarderRates

type forwarderRates struct {
	incarnation uint64
	seconds     float64 // between the reports
	before, now map[counterKey]*rules.StageCounters
}

type counterKey struct {
	chainLabel, egressLabel, stage uint32
	reverse                        bool
}

func keyOfCounters(c *rules.StageCounters) counterKey {
	return counterKey{c.ChainLabel &^ 1, c.EgressLabel, c.Stage, c.Direction == rules.Direction_DIRECTION_REVERSE}
}

// hear takes a forwarder's next report. One that tells no later time than the last adds nothing.
func (r rates) hear(before, now *rules.Status) {
	if before.GetIncarnation() == now.Incarnation && now.TimeUnixMs <= before.GetTimeUnixMs() {
		return
	}
	next := &forwarderRates{incarnation: now.Incarnation, now: map[counterKey]*rules.StageCounters{}}
	for _, c := range now.Stages {
		next.now[keyOfCounters(c)] = c
	}
	if last := r[now.Forwarder]; last != nil && last.incarnation == now.Incarnation {
		next.before = last.now
		next.seconds = float64(now.TimeUnixMs-before.GetTimeUnixMs()) / 1000
	}
	r[now.Forwarder] = next
}

// measurement sums a chain's stages over the site's forwarders; nil where nothing was counted.
func (r rates) measurement(site string, key ChainKey, labels []uint32, statuses map[string]*rules.Status) *control.Measurement {
	stages := map[counterKey]*control.StageMeasurement{}
	m := &control.Measurement{Site: site, Customer: key.Customer, Chain: key.Chain}
	for forwarder, f := range r {
		counted := false
		for at, c := range f.now {
			if slices.Contains(labels, at.chainLabel) {
				f.add(stages, at, c)
				counted = true
			}
		}
		if counted {
			m.TimeUnixMs = max(m.TimeUnixMs, statuses[forwarder].GetTimeUnixMs())
		}
	}
	if len(stages) == 0 {
		return nil
	}
	for _, s := range stages {
		m.Stages = append(m.Stages, s)
	}
	slices.SortFunc(m.Stages, func(a, b *control.StageMeasurement) int {
		return cmp.Or(cmp.Compare(a.ChainLabel, b.ChainLabel), cmp.Compare(a.EgressLabel, b.EgressLabel), cmp.Compare(a.Stage, b.Stage),
			cmp.Compare(direction(a.Reverse), direction(b.Reverse)))
	})
	return m
}

func direction(reverse bool) int {
	if reverse {
		return 1
	}
	return 0
}

func (f *forwarderRates) add(stages map[counterKey]*control.StageMeasurement, at counterKey, c *rules.StageCounters) {
	s := stages[at]
	if s == nil {
		s = &control.StageMeasurement{ChainLabel: at.chainLabel, EgressLabel: at.egressLabel, Stage: at.stage, Reverse: at.reverse}
		stages[at] = s
	}
	s.Packets += c.Packets
	s.Bytes += c.Bytes
	s.NewFlows += c.NewFlows
	for reason, packets := range c.Drops {
		if s.Drops == nil {
			s.Drops = map[string]uint64{}
		}
		s.Drops[reason] += packets
	}
	if f.seconds <= 0 {
		return
	}
	before := f.before[at] // nil where the stage is new: it began at zero
	s.PacketsPerSecond += grown(c.Packets, before.GetPackets()) / f.seconds
	s.Mbps += grown(c.Bytes, before.GetBytes()) * 8 / 1e6 / f.seconds
	s.OriginMbps += grown(c.OriginBytes, before.GetOriginBytes()) * 8 / 1e6 / f.seconds
}

// grown is by how much a counter grew; one that was begun anew counts from zero.
func grown(now, before uint64) float64 {
	if now < before {
		return float64(now)
	}
	return float64(now - before)
}
