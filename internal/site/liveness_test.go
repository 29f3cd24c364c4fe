package site

import (
	"slices"
	"testing"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

func remotes(sites ...string) []*control.ForwarderRecord {
	var all []*control.ForwarderRecord
	for _, s := range sites {
		all = append(all, &control.ForwarderRecord{Site: s, Forwarder: "f1", Alive: true})
	}
	return all
}

// rounds asks so many times; answers come from the sites named.
func (l *liveness) rounds(n int, remote []*control.ForwarderRecord, answering ...string) {
	for range n {
		suspects, witnesses := l.suspects(remote)
		answered := map[string]bool{}
		for _, f := range append(witnesses, suspects...) {
			if slices.Contains(answering, f.Site) {
				answered[peerID(f)] = true
			}
		}
		l.take(suspects, answered)
	}
}

func TestSilentPeersAreGone(t *testing.T) {
	remote := remotes("a", "b", "c")
	for name, c := range map[string]struct {
		down      []string
		rounds    int
		answering []string
		want      []string
	}{
		"dead site":                     {[]string{"a"}, silentRounds, []string{"b", "c"}, []string{"a/f1"}},
		"control plane only":            {[]string{"a"}, silentRounds, []string{"a", "b", "c"}, nil},
		"one answer lost":               {[]string{"a"}, silentRounds - 1, []string{"b", "c"}, nil},
		"this site is cut off":          {[]string{"a", "b", "c"}, silentRounds, nil, nil},
		"two of three":                  {[]string{"a", "b", "c"}, silentRounds, []string{"c"}, []string{"a/f1", "b/f1"}},
		"link up and the underlay deaf": {nil, silentRounds, []string{"b"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLiveness()
			for _, site := range c.down {
				l.hearLink(bus.Link{Peer: site})
			}
			l.rounds(c.rounds, remote, c.answering...)
			var gone []string
			for _, f := range remote {
				if l.gone[peerID(f)] {
					gone = append(gone, peerID(f))
				}
			}
			if !slices.Equal(gone, c.want) {
				t.Errorf("gone: %v, want %v", gone, c.want)
			}
		})
	}
}

func TestPeersReturnWithAnAnswerOrTheirLink(t *testing.T) {
	remote := remotes("a", "b")
	for name, back := range map[string]func(*liveness){
		"answer": func(l *liveness) { l.rounds(1, remote, "a", "b") },
		"link": func(l *liveness) {
			l.hearLink(bus.Link{Peer: "a", Up: true})
			l.rounds(1, remote, "b")
		},
	} {
		l := newLiveness()
		l.hearLink(bus.Link{Peer: "a"})
		l.rounds(silentRounds, remote, "b")
		if !l.gone["a/f1"] || len(l.changed) == 0 {
			t.Fatalf("%s: not gone before", name)
		}
		l.changed = nil
		if back(&l); l.gone["a/f1"] || len(l.changed) == 0 {
			t.Errorf("%s: gone %v, changed %v", name, l.gone["a/f1"], l.changed)
		}
	}
}
