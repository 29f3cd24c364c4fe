package site

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// A site that dies as a whole cannot say that its forwarders are gone, and a link of the message bus that is down proves
// nothing: the control plane may be away while packets flow. So forwarders of sites whose link is down are asked on the
// underlay, as their neighbours ask them (ARP). One that stays silent gets no new flows until it answers or its site's link
// is back. Two things must fail at once, each for more than a second: a process that is busy or starts again does not lose
// the connections of a forwarder that works. Where nobody answers, this site is the one that is cut off, and nothing is changed. Peers behind gateways, and
// IPv6 underlays, are not asked: their records count.

const (
	// askInterval is how often forwarders of sites whose link is down are asked. The bus has noticed the link's silence
	// for 1 to 1.5 s by then.
	askInterval = 300 * time.Millisecond
	// silentRounds is how often in a row a forwarder must fail to answer.
	silentRounds = 4
	// askPatience is how long an answer may take beyond the way there and back.
	askPatience = 250 * time.Millisecond
	// mostWitnesses bounds how many other forwarders are asked to see whether this site itself is cut off.
	mostWitnesses = 3
)

// liveness knows which peers do not answer.
type liveness struct {
	down    map[string]bool // by site, that its link is down
	silent  map[string]int  // by peer, rounds without an answer
	gone    map[string]bool // by peer
	asking  bool
	changed []string // peers that went or returned since the changes were taken
}

func newLiveness() liveness {
	return liveness{down: map[string]bool{}, silent: map[string]int{}, gone: map[string]bool{}}
}

// hearLink takes a link's state.
func (l *liveness) hearLink(link bus.Link) {
	if link.Up {
		delete(l.down, link.Peer)
	} else {
		l.down[link.Peer] = true
	}
}

// suspects divides forwarders into those to ask, and those that can witness that this site is not cut off. Peers of sites
// whose link is back are believed again.
func (l *liveness) suspects(remote []*control.ForwarderRecord) (suspects, witnesses []*control.ForwarderRecord) {
	for _, f := range remote {
		switch {
		case !l.down[f.Site]:
			l.settle(peerID(f), false)
			delete(l.silent, peerID(f))
			if len(witnesses) < mostWitnesses {
				witnesses = append(witnesses, f)
			}
		case f.Alive:
			suspects = append(suspects, f)
		}
	}
	return suspects, witnesses
}

// take notes who answered of those asked.
func (l *liveness) take(suspects []*control.ForwarderRecord, answered map[string]bool) {
	if len(answered) == 0 {
		return // nobody: it is we who are cut off
	}
	for _, f := range suspects {
		id := peerID(f)
		if answered[id] {
			delete(l.silent, id)
			l.settle(id, false)
			continue
		}
		if l.silent[id]++; l.silent[id] >= silentRounds {
			l.settle(id, true)
		}
	}
}

func (l *liveness) settle(id string, gone bool) {
	if l.gone[id] != gone {
		l.gone[id] = gone
		l.changed = append(l.changed, id)
	}
}

// askPeers asks suspects in the background; the answers come as an event.
func (s *Switchboard) askPeers(ctx context.Context) {
	l := &s.state.liveness
	suspects, witnesses := l.suspects(s.state.forwarders())
	s.takeLiveness()
	if len(suspects) == 0 || l.asking {
		return
	}
	l.asking = true
	distance, patience := s.state.latency(), map[string]time.Duration{}
	for _, f := range append(witnesses, suspects...) {
		patience[f.Site] = askPatience
		if ms := distance(s.config.Site, f.Site); !math.IsInf(ms, 0) {
			patience[f.Site] += time.Duration(3 * ms * float64(time.Millisecond)) // there, back, and half as much again
		}
	}
	own := s.config.Forwarders[0]
	go func() {
		answered := s.ask(own, append(witnesses, suspects...), patience)
		s.send(ctx, func() {
			l.asking = false
			l.take(suspects, answered)
			s.takeLiveness()
			if slices.ContainsFunc(suspects, func(f *control.ForwarderRecord) bool { return !answered[peerID(f)] }) {
				s.askPeers(ctx) // the silence has taken its time already
			}
		})
	}()
}

func (s *Switchboard) takeLiveness() {
	l := &s.state.liveness
	for _, id := range l.changed {
		s.rulesDue = true
		if l.gone[id] {
			s.log.Warn("a forwarder does not answer on the underlay and its site cannot be reached", "peer", id)
		} else {
			s.log.Info("a forwarder is back", "peer", id)
		}
	}
	l.changed = nil
}

// ask finds which forwarders answer on the underlay. Those that cannot be asked count as answering.
func (s *Switchboard) ask(own Forwarder, forwarders []*control.ForwarderRecord, patience map[string]time.Duration) map[string]bool {
	answered := map[string]bool{}
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, f := range forwarders {
		all.Go(func() {
			if s.answers(own, f, patience[f.Site]) {
				mu.Lock()
				defer mu.Unlock()
				answered[peerID(f)] = true
			}
		})
	}
	all.Wait()
	return answered
}

func (s *Switchboard) answers(own Forwarder, f *control.ForwarderRecord, patience time.Duration) bool {
	target, err := netip.ParseAddr(f.Address)
	source, errOwn := netip.ParsePrefix(own.TunnelAddress)
	if err != nil || errOwn != nil || !target.Is4() || !source.Contains(target) {
		return true
	}
	answers, err := s.host.AnswersARP(own.Interface, source.Addr(), target, patience)
	return answers || err != nil
}
