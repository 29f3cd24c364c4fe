package site

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/switchboard-project/switchboard/internal/vnf/instance"
)

// Thing is what has a home among a site's forwarders: an interface with edges, or an instance.
type Thing struct {
	// Interface is that of edges; empty for an instance.
	Interface string
	// Instance is its name; empty for an interface.
	Instance string
}

// Role is what a forwarder has to do with a thing that is at home with another.
type Role int

// The roles that a forwarder goes through: the home to be is Preparing; the home that was is Ending, then Passing.
const (
	// Preparing: it has the thing's ports open and learns its connections; nothing comes to it yet.
	Preparing Role = iota + 1
	// Ending: it still takes what the thing sends, until the new home does.
	Ending
	// Passing: it takes nothing from the thing any more, and gives it what others still send here.
	Passing
)

// takes reports whether the forwarder takes what the thing sends.
func (r Role) takes() bool { return r == Ending }

// serves reports whether packets of others may reach the thing through the forwarder.
func (r Role) serves() bool { return r == Ending || r == Passing }

// home is where a thing is, and who else has it on the way to or from there.
type home struct {
	forwarder string
	visitors  map[string]*visitor
}

type visitor struct {
	role  Role
	since time.Time
	// told is what was logged of a port that it cannot open.
	told string
}

func newHome(forwarder string) *home {
	return &home{forwarder: forwarder, visitors: map[string]*visitor{}}
}

// homes are those of all things. Where each was is read back from the rules that were published last.
type homes map[Thing]*home

// restoreHomes finds the homes of things in the rules published last.
func (s *Switchboard) restoreHomes() {
	h := s.state.homes
	note := func(t Thing, forwarder string, passive bool) {
		if at := h[t]; !passive && (at == nil || at.visitors[forwarder] == nil) {
			if at != nil && at.forwarder != forwarder {
				at.visitors[forwarder] = &visitor{role: Ending, since: time.Now()}
			} else if at == nil {
				h[t] = newHome(forwarder)
			}
		}
	}
	passive := map[Thing][]string{}
	for _, name := range sortedKeys(s.results.rules) {
		set := s.results.rules[name]
		for _, e := range set.Edges {
			t := Thing{Interface: e.Port}
			if note(t, name, e.Passive); e.Passive && !slices.Contains(passive[t], name) {
				passive[t] = append(passive[t], name)
			}
		}
		for _, a := range set.Attachments {
			t := Thing{Instance: a.Instance}
			if note(t, name, a.Passive); a.Passive && !slices.Contains(passive[t], name) {
				passive[t] = append(passive[t], name)
			}
		}
	}
	for t, names := range passive {
		for _, name := range names {
			if at := h[t]; at != nil && at.forwarder != name && at.visitors[name] == nil {
				// Whether it was on its way in or out shows in where the thing is wanted.
				at.visitors[name] = &visitor{role: Passing, since: time.Now()}
			}
		}
	}
}

// at is the forwarder that a thing is at home with, "" where it has no home yet.
func (h homes) at(t Thing) string {
	if found := h[t]; found != nil {
		return found.forwarder
	}
	return ""
}

// visitorsOf are the roles of other forwarders, for Compute.
func (h homes) visitorsOf() map[Thing]map[string]Role {
	all := map[Thing]map[string]Role{}
	for t, at := range h {
		for name, v := range at.visitors {
			if all[t] == nil {
				all[t] = map[string]Role{}
			}
			all[t][name] = v.role
		}
	}
	return all
}

// homeOfInterface is the forwarder that an interface is at home with, "" where edges may not use it. One that has no home yet gets
// the one of the configuration.
func (s *Switchboard) homeOfInterface(name string) string {
	to := s.forwarderOf(name)
	if to == "" {
		return ""
	}
	return s.homeOf(Thing{Interface: name}, to).forwarder
}

// moving reports whether any thing is on its way.
func (h homes) moving() bool {
	for _, at := range h {
		if len(at.visitors) > 0 {
			return true
		}
	}
	return false
}

// has reports whether a forwarder has anything to do with any thing.
func (h homes) has(forwarder string) bool {
	for _, at := range h {
		if at.forwarder == forwarder || at.visitors[forwarder] != nil {
			return true
		}
	}
	return false
}

// wantedHomes says where each thing is to be: interfaces where the configuration says, instances spread evenly, and
// otherwise where they are.
func (s *Switchboard) wantedHomes() map[Thing]string {
	wanted := map[Thing]string{}
	for t := range s.state.homes {
		if to := s.forwarderOf(t.Interface); to != "" {
			wanted[t] = to
		}
	}
	if s.state.observed == nil {
		return wanted
	}
	names := s.takers()
	load := map[string]int{}
	for _, name := range names {
		load[name] = 0
	}
	instances := slices.Clone(s.state.observed.Instances)
	slices.SortFunc(instances, func(a, b instance.Status) int { return cmp.Compare(a.Name, b.Name) })
	var homeless []instance.Status
	for _, in := range instances {
		t := Thing{Instance: in.Name}
		to := s.state.homes.settledOn(t)
		if gone := s.state.leaving[to]; gone != nil {
			to = gone.Successor
		}
		if _, known := load[to]; !known && !s.isConfigured(to) {
			homeless = append(homeless, in)
			continue
		}
		wanted[t] = to
		load[to]++
	}
	for _, in := range homeless {
		to := in.Forwarder // the agent's proposal
		if _, known := load[to]; !known {
			to = leastLoaded(names, load)
		}
		wanted[Thing{Instance: in.Name}] = to
		load[to]++
	}
	s.even(names, instances, wanted, load)
	return wanted
}

// settledOn is where a thing is, or where it is already on its way to.
func (h homes) settledOn(t Thing) string {
	at := h[t]
	if at == nil {
		return ""
	}
	for name, v := range at.visitors {
		if v.role == Preparing {
			return name
		}
	}
	return at.forwarder
}

// even moves one instance at a time from the forwarder with most to that with fewest, as long as two or more lie between them.
func (s *Switchboard) even(names []string, instances []instance.Status, wanted map[Thing]string, load map[string]int) {
	if len(s.state.leaving) > 0 || s.state.homes.moving() || len(names) < 2 {
		return
	}
	least := leastLoaded(names, load)
	most := least
	for _, name := range names {
		if load[name] > load[most] {
			most = name
		}
	}
	if load[most]-load[least] < 2 {
		return
	}
	for _, in := range slices.Backward(instances) {
		if t := (Thing{Instance: in.Name}); wanted[t] == most {
			wanted[t] = least
			return
		}
	}
}

// takers are forwarders that may get more to do: those that live, or all where none does.
func (s *Switchboard) takers() []string {
	var all, living []string
	for _, f := range s.config.Forwarders {
		all = append(all, f.Name)
		if s.state.present[f.Name] {
			living = append(living, f.Name)
		}
	}
	if len(living) > 0 {
		return living
	}
	return all
}

func leastLoaded(names []string, load map[string]int) string {
	best := names[0]
	for _, name := range names {
		if load[name] < load[best] {
			best = name
		}
	}
	return best
}

func (s *Switchboard) isConfigured(forwarder string) bool {
	return slices.ContainsFunc(s.config.Forwarders, func(f Forwarder) bool { return f.Name == forwarder })
}

// ownForwarders are those configured, and those that still go.
func (s *Switchboard) ownForwarders() []Forwarder {
	all := slices.Clone(s.config.Forwarders)
	for _, name := range sortedKeys(s.state.leaving) {
		all = append(all, s.state.leaving[name].Forwarder)
	}
	return all
}

// forgetHomes drops things that are no more.
func (s *Switchboard) forgetHomes(wanted map[Thing]string) {
	maps.DeleteFunc(s.state.homes, func(t Thing, _ *home) bool {
		_, there := wanted[t]
		return !there && s.state.observed != nil
	})
}

// takeHome tells attachments and instances their homes, as far as they have one.
func (s *Switchboard) takeHome() {
	if s.state.observed == nil {
		return
	}
	for i := range s.state.observed.Instances {
		in := &s.state.observed.Instances[i]
		if at := s.state.homes.at(Thing{Instance: in.Name}); at != "" {
			in.Forwarder = at
		}
	}
	for i := range s.state.observed.Attachments {
		a := &s.state.observed.Attachments[i]
		if at := s.state.homes.at(Thing{Instance: a.Instance}); at != "" {
			a.Forwarder = at
		}
	}
}
