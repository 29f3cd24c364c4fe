package site

import (
	"time"

	"google.golang.org/protobuf/proto"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

// absencePatience is how long connections wait for a forwarder that does not live: one that was killed is started again, and
// knows its connections; elsewhere nobody would. New connections do not wait.
const absencePatience = 3 * time.Second

// absences says since when forwarders do not live, by peer id.
type absences map[string]time.Time

// note takes whether a forwarder lives; it says whether connections still wait for one that does not.
func (a absences) note(id string, lives bool, now time.Time) (away bool) {
	if lives {
		delete(a, id)
		return false
	}
	if _, known := a[id]; !known {
		a[id] = now
	}
	return now.Sub(a[id]) < absencePatience
}

// noteAbsences sees which forwarders do not live, and fills in Remote, Away and Dead. Until it is known who lives at this
// site, all do.
func (s *Switchboard) noteAbsences(in *Inputs, now time.Time) {
	in.Away, in.Dead = map[string]bool{}, map[string]bool{}
	for _, f := range s.state.forwarders() {
		id := peerID(f)
		lives := f.Alive && !s.state.liveness.gone[id]
		if f.Alive && !lives {
			f = proto.CloneOf(f)
			f.Alive = false
		}
		if s.state.absences.note(id, lives, now) {
			in.Away[id] = true
		}
		in.Remote = append(in.Remote, f)
	}
	for _, f := range in.Forwarders {
		id := peerID(&control.ForwarderRecord{Site: in.Site, Forwarder: f.Name})
		lives := !s.state.presenceKnown || s.state.present[f.Name]
		if s.state.absences.note(id, lives, now) {
			in.Away[id] = true
		} else if !lives {
			in.Dead[id] = true
		}
	}
}

// absencesDue reports whether a forwarder's absence has become too long for connections to wait.
func (s *Switchboard) absencesDue(now time.Time) bool {
	for id, since := range s.state.absences {
		if s.results.waitsFor[id] && now.Sub(since) >= absencePatience {
			return true
		}
	}
	return false
}
