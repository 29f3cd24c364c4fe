package site

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// A thing moves to another forwarder without losing a packet or a connection: the new home opens its ports and gets the flow
// entries of the old one; then it takes what the thing sends, and when it does the old one stops. What others still send to the
// old home goes out there for a moment; after that it passes such packets on to the new home, for as long as it lives.

const (
	// preparingTime is how long a new home waits at least, so that other sites know it and its address before packets come from it.
	preparingTime = time.Second
	// passingTime is how long the old home serves a thing by itself, so that other sites can follow.
	passingTime = 2 * time.Second
	// copyPatience is how long attempts to hand connections over may fail before a thing moves without.
	copyPatience = 10 * time.Second
	copyTimeout  = 5 * time.Second
	copyPause    = 300 * time.Millisecond
	// leaveTime is how long a forwarder that has handed everything over is still listed, so that others follow before it ends.
	leaveTime = 3 * time.Second
)

// copying hands a forwarder's flow entries to another.
type copying struct {
	running       bool
	asked         time.Time // since when it is wanted and has not succeeded
	begun, failed time.Time // of the last attempt
	done          time.Time // when the last attempt that succeeded began
	flows         uint64
}

type route struct{ from, to string }

// settleHomes brings things a step closer to where they are wanted; it says whether rules must follow.
func (s *Switchboard) settleHomes(ctx context.Context) bool {
	if s.state.observed == nil || !s.state.presenceKnown {
		return false
	}
	wanted := s.wantedHomes()
	s.forgetHomes(wanted)
	changed := false
	for _, t := range sortedThings(wanted) {
		if s.settle(ctx, t, s.homeOf(t, wanted[t]), wanted[t]) {
			changed = true
		}
	}
	s.takeHome()
	return s.retire(ctx) || changed
}

// homeOf is a thing's home; one that has none yet begins where it is wanted.
func (s *Switchboard) homeOf(t Thing, wanted string) *home {
	if s.state.homes[t] == nil {
		s.state.homes[t] = newHome(wanted)
	}
	return s.state.homes[t]
}

func (s *Switchboard) settle(ctx context.Context, t Thing, at *home, to string) (changed bool) {
	if at.forwarder != to {
		changed = s.approach(ctx, t, at, to)
	}
	for _, name := range sortedKeys(at.visitors) {
		if name != to || at.forwarder == to {
			changed = s.dismiss(ctx, at, name) || changed
		}
	}
	return changed
}

// approach brings a thing towards a new home, and makes it that when it is ready.
func (s *Switchboard) approach(ctx context.Context, t Thing, at *home, to string) bool {
	if !s.state.present[at.forwarder] && s.state.leaving[at.forwarder] != nil {
		s.log.Warn("a forwarder is gone; what it had moves without its connections", "what", t, "from", at.forwarder, "to", to)
		delete(at.visitors, to)
		at.forwarder = to
		return true
	}
	if at.visitors[to] == nil {
		at.visitors[to] = &visitor{role: Preparing, since: time.Now()}
		return true
	}
	if !s.hasOpened(to, t) {
		s.tellUnopened(to, t, at.visitors[to])
		return false
	}
	if time.Since(at.visitors[to].since) < preparingTime {
		return false
	}
	if !s.handedOver(ctx, route{at.forwarder, to}, at.visitors[to].since) {
		return false
	}
	s.log.Info("moved to another forwarder", "what", t, "from", at.forwarder, "to", to)
	delete(at.visitors, to)
	at.visitors[at.forwarder] = &visitor{role: Ending, since: time.Now()}
	at.forwarder = to
	return true
}

// dismiss takes a forwarder's part in a thing back, step by step.
func (s *Switchboard) dismiss(ctx context.Context, at *home, name string) bool {
	v := at.visitors[name]
	switch {
	case v.role == Preparing || !s.state.present[name]:
		delete(at.visitors, name)
	case v.role == Ending && s.follows(at.forwarder):
		v.role, v.since = Passing, time.Now()
	case v.role == Passing && s.follows(name) && s.handedOver(ctx, route{name, at.forwarder}, v.since) && time.Since(v.since) >= passingTime:
		delete(at.visitors, name)
	default:
		return false
	}
	return true
}

// follows reports whether a forwarder has applied the rules published last.
func (s *Switchboard) follows(forwarder string) bool {
	set := s.results.rules[forwarder]
	return set != nil && s.state.present[forwarder] && s.state.statuses[forwarder].GetAppliedGeneration() >= set.Generation
}

// hasOpened reports whether a forwarder follows its rules and has a thing's ports open.
func (s *Switchboard) hasOpened(forwarder string, t Thing) bool {
	if !s.follows(forwarder) {
		return false
	}
	port, _ := s.unopened(forwarder, t)
	return port == ""
}

// unopened is a port of a thing that a forwarder has in its rules and not open, with what it says of it; "" where there is none.
func (s *Switchboard) unopened(forwarder string, t Thing) (port, why string) {
	want := []string{t.Interface}
	if t.Instance != "" {
		want = nil
		for _, in := range s.state.observed.Instances {
			if in.Name == t.Instance {
				want = in.Ports
			}
		}
	}
	listed := func(name string) bool {
		return slices.ContainsFunc(s.results.rules[forwarder].Ports, func(p *rules.Port) bool { return p.Name == name })
	}
	for _, name := range want {
		if !listed(name) {
			continue
		}
		ports := s.state.statuses[forwarder].GetPorts()
		at := slices.IndexFunc(ports, func(p *rules.PortStatus) bool { return p.Name == name })
		switch {
		case at < 0:
			return name, ""
		case ports[at].Error != "":
			return name, ports[at].Error
		}
	}
	return "", ""
}

// tellUnopened logs, once for each reason, which port the new home of a thing cannot open: the thing stays where it is.
func (s *Switchboard) tellUnopened(forwarder string, t Thing, v *visitor) {
	if !s.follows(forwarder) {
		return
	}
	port, why := s.unopened(forwarder, t)
	if why == "" || v.told == port+why {
		return
	}
	v.told = port + why
	s.log.Warn("a forwarder cannot open a port: what has it does not move there", "what", t, "to", forwarder, "port", port, "error", why)
}

// handedOver reports whether all flow entries of a forwarder went to another since a moment, and sees to it that they do. Where
// that fails for long it is given up: connections are steered by the hash then.
func (s *Switchboard) handedOver(ctx context.Context, r route, since time.Time) bool {
	c := s.state.copies[r]
	if c == nil {
		c = &copying{}
		s.state.copies[r] = c
	}
	if c.done.After(since) {
		return true
	}
	now := time.Now()
	if c.asked.Before(since) {
		c.asked = now
	}
	if !c.running && now.Sub(c.asked) > copyPatience {
		s.log.Warn("connections cannot be handed over; the hash chooses for them", "from", r.from, "to", r.to)
		c.done = now
		return true
	}
	if !c.running && now.Sub(c.failed) > copyPause {
		c.running, c.begun = true, now
		s.tasks.Go(func() { s.copyFlows(ctx, r) })
	}
	return false
}

// copyFlows hands all flow entries of a forwarder to another, in the background.
func (s *Switchboard) copyFlows(ctx context.Context, r route) {
	flows, err := s.copyPages(ctx, r)
	s.send(ctx, func() {
		c := s.state.copies[r]
		if c.running = false; err != nil {
			c.failed = time.Now()
			s.log.Warn("connections are not handed over yet", "from", r.from, "to", r.to, "error", err)
			return
		}
		c.done, c.flows = c.begun, flows
		s.log.Info("connections handed over", "from", r.from, "to", r.to, "entries", flows, "took", time.Since(c.begun).Round(time.Millisecond))
	})
}

func (s *Switchboard) copyPages(ctx context.Context, r route) (uint64, error) {
	ask := func(forwarder, service string, request, reply proto.Message) error {
		limited, cancel := context.WithTimeout(ctx, copyTimeout)
		defer cancel()
		payload, err := proto.Marshal(request)
		if err != nil {
			return err
		}
		answer, err := s.connection.Request(limited, s.config.Site, bus.Key("forwarder", forwarder, service), payload)
		if err != nil {
			return fmt.Errorf("%s of forwarder %s: %w", service, forwarder, err)
		}
		return proto.Unmarshal(answer, reply)
	}
	taken := uint64(0)
	for begin := true; ; begin = false {
		page, reply := &rules.FlowPage{}, &rules.ImportFlowsReply{}
		if err := ask(r.from, "export", &rules.ExportFlowsRequest{Begin: begin}, page); err != nil {
			return taken, err
		}
		if len(page.Flows) > 0 {
			request := &rules.ImportFlowsRequest{From: s.config.Site + "/" + r.from, Page: page}
			if err := ask(r.to, "import", request, reply); err != nil {
				return taken, err
			}
			taken += reply.Taken
		}
		if !page.More {
			return taken, nil
		}
	}
}

func sortedThings(m map[Thing]string) []Thing {
	var all []Thing
	for t := range m {
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b Thing) int {
		return cmp.Or(cmp.Compare(a.Interface, b.Interface), cmp.Compare(a.Instance, b.Instance))
	})
	return all
}
