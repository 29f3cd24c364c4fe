package site

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf/instance"
)

// siblings are the inputs of a site with a LAN, two firewalls and two forwarders, of which the first has everything.
func siblings(t *testing.T) Inputs {
	t.Helper()
	n := office("office", "cloud")
	n.instance("office", "firewall", "fw-1", 100)
	n.instance("office", "firewall", "fw-2", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office office cloud")
	in := n.inputs("office")
	in.Forwarders = append(in.Forwarders, Forwarder{Name: "f2", TunnelAddress: "192.0.2.77/24", Interface: "wan1", MTU: 1600, Driver: DriverAFPacket})
	in.Visitors = map[Thing]map[string]Role{}
	return in
}

// part says what a forwarder has of an edge or an attachment: "", "passive" or "active", with "+" where packets of others may
// reach it there.
func part(set *rules.RuleSet, id string) string {
	found := ""
	say := func(passive bool) {
		found = "active"
		if passive {
			found = "passive"
		}
	}
	for _, e := range set.Edges {
		if e.Id == id {
			say(e.Passive)
		}
	}
	for _, a := range set.Attachments {
		if a.Id == id {
			say(a.Passive)
		}
	}
	for _, l := range localTargets(set) {
		if (l.GetEdge() == id || l.GetAttachment() == id) && l.Weight > 0 {
			return found + "+"
		}
	}
	return found
}

func movedIn(set *rules.RuleSet) []string {
	var all []string
	for _, m := range set.Moved {
		all = append(all, movedKey(m)+" -> "+m.To)
	}
	return all
}

// TestAThingIsAlwaysAtSomeForwarderWhileItMoves: whatever the step, one forwarder at least takes what comes from it, and every
// forwarder that others may send to can pass it on.
func TestAThingIsAlwaysAtSomeForwarderWhileItMoves(t *testing.T) {
	const edge, fw = "acme/lan", "fw-1/16/101/1"
	type step struct {
		home         string
		visitor      string
		role         Role
		want1, want2 string // what f1 and f2 have
		moved1       bool
	}
	for _, s := range []step{
		{home: "f1", want1: "active+", want2: ""},
		{home: "f1", visitor: "f2", role: Preparing, want1: "active+", want2: "passive"},
		{home: "f2", visitor: "f1", role: Ending, want1: "active+", want2: "active+"},
		{home: "f2", visitor: "f1", role: Passing, want1: "passive+", want2: "active+"},
		{home: "f2", want1: "", want2: "active+", moved1: true},
	} {
		for id, thing := range map[string]Thing{edge: {Interface: "lan0"}, fw: {Instance: "fw-1"}} {
			in := siblings(t)
			in.Previous = Compute(siblings(t)).Rules
			if thing.Interface != "" {
				in.UsableEdges[EdgeKey{"acme", "lan"}] = s.home
			}
			for i := range in.Attachments {
				if in.Attachments[i].Instance == thing.Instance {
					in.Attachments[i].Forwarder = s.home
				}
			}
			if s.visitor != "" {
				in.Visitors[thing] = map[string]Role{s.visitor: s.role}
			}
			result := Compute(in)
			one, two := part(result.Rules["f1"], id), part(result.Rules["f2"], id)
			if one != s.want1 || two != s.want2 {
				t.Errorf("%s at home with %s, %s visiting as %d: f1 has it %q, f2 %q; want %q and %q", id, s.home, s.visitor, s.role, one, two, s.want1, s.want2)
			}
			moved := slices.ContainsFunc(movedIn(result.Rules["f1"]), func(m string) bool { return m == "edge "+id+" -> office/f2" || m == "attachment "+id+" -> office/f2" })
			if moved != s.moved1 {
				t.Errorf("%s at home with %s: f1 says that moved: %v", id, s.home, movedIn(result.Rules["f1"]))
			}
		}
	}
}

// TestWhatMovedIsPassedOnAtItsStages: others may send to the old home for as long as they have it, so it keeps the stages of what it had
// though it has nothing there any more. Before a thing was there, it has none.
func TestWhatMovedIsPassedOnAtItsStages(t *testing.T) {
	stages := func(in Inputs, forwarder string) (numbers []uint32) {
		for _, p := range Compute(in).Rules[forwarder].Paths {
			for _, s := range p.Stages {
				numbers = append(numbers, s.Number)
			}
		}
		return numbers
	}
	in := siblings(t)
	if got := stages(in, "f2"); len(got) > 0 {
		t.Errorf("a forwarder that never had anything takes part in stages %v", got)
	}
	in.Previous = Compute(siblings(t)).Rules
	for i := range in.Attachments {
		in.Attachments[i].Forwarder = "f2"
	}
	in.UsableEdges[EdgeKey{"acme", "lan"}] = "f2"
	for range 2 { // it is read from the rules before, again and again
		if got := stages(in, "f1"); !slices.Equal(got, []uint32{1, 2}) {
			t.Errorf("what moved is passed on at stages %v, want 1 and 2", got)
		}
		in.Previous = Compute(in).Rules
	}
	in.Chains = nil
	if got := stages(in, "f1"); len(got) > 0 {
		t.Errorf("without its chain it takes part in stages %v", got)
	}
}

func TestOtherSitesFollowAForwarderThatWasTakenOver(t *testing.T) {
	n := office("office", "cloud")
	n.instance("cloud", "firewall", "fw-1", 100)
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office cloud cloud")
	before := n.compute("office").Rules["f1"]
	in := n.inputs("office")
	in.Previous["f1"] = before
	successor := n.forwarder("cloud")
	successor.Forwarder, successor.Address, successor.TookOver = "f2", "192.0.2.99", []string{"f1"}
	leaving := n.forwarder("cloud")
	leaving.VnfWeights, leaving.Edges, leaving.Leaving = nil, nil, true
	for name, remote := range map[string][]*control.ForwarderRecord{"going": {leaving, successor}, "gone": {successor}} {
		in.Remote = remote
		set := Compute(in).Rules["f1"]
		if got := movedIn(set); !slices.Equal(got, []string{"peer cloud/f1 -> cloud/f2"}) {
			t.Errorf("%s: %v", name, got)
		}
		// What it still sends must be known as its own.
		if !slices.ContainsFunc(set.Peers, func(p *rules.Peer) bool { return p.Id == "cloud/f1" && p.Address == "192.0.2.2" }) {
			t.Errorf("%s: peers are %v", name, set.Peers)
		}
	}
}

func TestSiblingsThatAreAwayGetNoNewConnections(t *testing.T) {
	for name, c := range map[string]struct {
		away, dead    bool
		alive, isAway bool
	}{
		"lives":           {alive: true},
		"since a moment":  {away: true, alive: true, isAway: true},
		"since some time": {dead: true},
	} {
		in := siblings(t)
		in.UsableEdges[EdgeKey{"acme", "lan"}] = "f2"
		in.Away, in.Dead = map[string]bool{"office/f2": c.away}, map[string]bool{"office/f2": c.dead}
		set := Compute(in).Rules["f1"]
		at := slices.IndexFunc(set.Peers, func(p *rules.Peer) bool { return p.Id == "office/f2" })
		if at < 0 {
			t.Fatalf("%s: f1 does not know f2: %v", name, set.Peers)
		}
		if p := set.Peers[at]; p.Alive != c.alive || p.Away != c.isAway {
			t.Errorf("%s: alive %v, away %v", name, p.Alive, p.Away)
		}
	}
}

func TestConnectionsWaitForAForwarderForSomeSeconds(t *testing.T) {
	s := testSwitchboard("f1", "f2")
	s.state.presenceKnown = true
	s.state.present["f1"] = true
	begun := time.Now()
	note := func(after time.Duration) Inputs {
		in := Inputs{Site: "office", Forwarders: s.config.Forwarders}
		s.noteAbsences(&in, begun.Add(after))
		s.results.waitsFor = in.Away
		return in
	}
	if in := note(0); !in.Away["office/f2"] || in.Dead["office/f2"] || in.Away["office/f1"] {
		t.Errorf("at once: away %v, dead %v", in.Away, in.Dead)
	}
	if s.absencesDue(begun.Add(absencePatience - 1)) {
		t.Error("rules are due before the time")
	}
	if !s.absencesDue(begun.Add(absencePatience)) {
		t.Error("rules are not due after the time")
	}
	if in := note(absencePatience); in.Away["office/f2"] || !in.Dead["office/f2"] {
		t.Errorf("later: away %v, dead %v", in.Away, in.Dead)
	}
	if s.absencesDue(begun.Add(2 * absencePatience)) {
		t.Error("rules are due again")
	}
	s.state.present["f2"] = true
	if in := note(3 * absencePatience); len(in.Away)+len(in.Dead) > 0 {
		t.Errorf("back: away %v, dead %v", in.Away, in.Dead)
	}
}

// testSwitchboard is a Local Switchboard without a bus, whose connections count as handed over.
func testSwitchboard(forwarders ...string) *Switchboard {
	config := &Config{Site: "office", EdgeInterfaces: []EdgeInterface{{Name: "lan0", Forwarder: forwarders[0]}}}
	for i, name := range forwarders {
		config.Forwarders = append(config.Forwarders, Forwarder{Name: name, Interface: "wan" + string(rune('0'+i)), TunnelAddress: "192.0.2.1/24"})
	}
	s := &Switchboard{config: config, state: newState(), results: newResults(), log: slog.New(slog.DiscardHandler)}
	s.state.observed = &instance.Observed{}
	return s
}

func (s *Switchboard) observe(names ...string) {
	s.state.observed = &instance.Observed{}
	for _, name := range names {
		s.state.observed.Instances = append(s.state.observed.Instances, instance.Status{Name: name, Forwarder: s.config.Forwarders[0].Name,
			State: api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY})
	}
}

// live has forwarders follow whatever rules they have.
func (s *Switchboard) live(names ...string) {
	s.state.presenceKnown = true
	for _, name := range names {
		s.state.present[name] = true
		s.results.rules[name] = &rules.RuleSet{Generation: 1}
		s.state.statuses[name] = &rules.Status{AppliedGeneration: 1}
	}
}

// step lets time pass, as far as connections are concerned, and settles.
func (s *Switchboard) step() bool {
	for from := range s.state.present {
		for to := range s.state.present {
			s.state.copies[route{from, to}] = &copying{done: time.Now().Add(time.Hour)}
		}
	}
	for _, at := range s.state.homes {
		for _, v := range at.visitors {
			v.since = v.since.Add(-passingTime)
		}
	}
	return s.settleHomes(context.Background())
}

func (s *Switchboard) settleAll(t *testing.T) {
	t.Helper()
	for range 100 {
		if !s.step() && !s.state.homes.moving() {
			return
		}
	}
	t.Fatalf("homes do not settle: %v", s.state.homes.visitorsOf())
}

func (s *Switchboard) load() map[string]int {
	load := map[string]int{}
	for t, at := range s.state.homes {
		if t.Instance != "" {
			load[at.forwarder]++
		}
	}
	return load
}

func TestInstancesSpreadOverForwarders(t *testing.T) {
	s := testSwitchboard("f1", "f2")
	s.live("f1")
	s.observe("a", "b", "c", "d", "e")
	s.settleAll(t)
	if load := s.load(); load["f1"] != 5 {
		t.Errorf("before the second lives: %v", load)
	}
	s.live("f2")
	s.settleAll(t)
	if load := s.load(); load["f1"] != 3 || load["f2"] != 2 {
		t.Errorf("with two forwarders: %v", load)
	}
	// One that falls silent keeps what it has.
	delete(s.state.present, "f2")
	s.settleAll(t)
	if load := s.load(); load["f2"] != 2 {
		t.Errorf("while the second is away: %v", load)
	}
}

// A thing whose new home cannot open its port stays where it is; the log says so once.
func TestAForwarderWithoutOpenPortsGetsNothing(t *testing.T) {
	s := testSwitchboard("f1", "f2")
	var log bytes.Buffer
	s.log = slog.New(slog.NewTextHandler(&log, nil))
	s.live("f1", "f2")
	s.state.homes[Thing{Interface: "lan0"}] = newHome("f2")
	s.results.rules["f1"].Ports = []*rules.Port{{Name: "lan0"}}
	s.state.statuses["f1"].Ports = []*rules.PortStatus{{Name: "lan0", Error: "busy"}}
	for range 10 {
		s.step()
	}
	if at := s.state.homes.at(Thing{Interface: "lan0"}); at != "f2" {
		t.Errorf("the edge is at %s, which cannot open its port", at)
	}
	if told := log.String(); strings.Count(told, "cannot open a port") != 1 || !strings.Contains(told, "to=f1 port=lan0 error=busy") {
		t.Errorf("the log says %q", told)
	}
	s.state.statuses["f1"].Ports[0].Error = ""
	s.settleAll(t)
	if at := s.state.homes.at(Thing{Interface: "lan0"}); at != "f1" {
		t.Errorf("the edge is at %s", at)
	}
}

func TestHomesAreFoundInTheRulesOfBefore(t *testing.T) {
	in := siblings(t)
	in.Attachments[0].Forwarder = "f2"
	in.Visitors[Thing{Instance: in.Attachments[0].Instance}] = map[string]Role{"f1": Passing}
	s := testSwitchboard("f1", "f2")
	s.results.rules = Compute(in).Rules
	s.restoreHomes()
	moved := s.state.homes[Thing{Instance: in.Attachments[0].Instance}]
	if moved.forwarder != "f2" || moved.visitors["f1"] == nil {
		t.Errorf("%+v", moved)
	}
	if at := s.state.homes.at(Thing{Interface: "lan0"}); at != "f1" {
		t.Errorf("the edge is at %q", at)
	}
}

func TestAConfigurationThatSplitsAForwardersEdgesIsRefused(t *testing.T) {
	s := testSwitchboard("f1", "f2", "f3")
	s.state.homes[Thing{Interface: "lan0"}] = newHome("f1")
	s.state.homes[Thing{Interface: "lan1"}] = newHome("f1")
	next := &Config{Site: "office", Forwarders: s.config.Forwarders[1:],
		EdgeInterfaces: []EdgeInterface{{Name: "lan0", Forwarder: "f2"}, {Name: "lan1", Forwarder: "f3"}}}
	want := "edgeInterfaces: those of forwarder f1, which goes, are given to f2 and f3; give all to one"
	if err := s.refuse(next); err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	next.EdgeInterfaces[1].Forwarder = "f2"
	if err := s.refuse(next); err != nil {
		t.Error(err)
	}
}

func TestWhoTookOverIsFoundOverSeveral(t *testing.T) {
	s := testSwitchboard("f3")
	s.state.gone = map[string]string{"f1": "f2", "f2": "f3", "f0": "f9"}
	if got := s.tookOver(); len(got) != 2 || got["f1"] != "f3" || got["f2"] != "f3" {
		t.Errorf("%v", got)
	}
}

// TestConnectionsAreHandedOverBeforeAndAfterAThingMoves: the new home takes over when it has had time to prepare and has the old one's
// connections; the old one serves for a while, and until those that began in between have been handed over too.
func TestConnectionsAreHandedOverBeforeAndAfterAThingMoves(t *testing.T) {
	s := testSwitchboard("f1", "f2")
	s.live("f1", "f2")
	s.observe("a")
	thing, way, ctx := Thing{Instance: "a"}, route{"f1", "f2"}, context.Background()
	for name, c := range map[string]struct {
		role       Role
		since      time.Duration // how long ago its role began
		handedOver bool          // since then
		goesOn     bool
	}{
		"prepares, has nothing yet":       {role: Preparing, since: 2 * preparingTime},
		"prepares, has had no time":       {role: Preparing, since: preparingTime / 2, handedOver: true},
		"prepared":                        {role: Preparing, since: 2 * preparingTime, handedOver: true, goesOn: true},
		"passes, others began in between": {role: Passing, since: 2 * passingTime},
		"passes, others may not follow":   {role: Passing, since: passingTime / 2, handedOver: true},
		"passed":                          {role: Passing, since: 2 * passingTime, handedOver: true, goesOn: true},
	} {
		begun := time.Now().Add(-c.since)
		copies := &copying{running: true, asked: begun, done: begun.Add(-time.Millisecond)}
		if c.handedOver {
			copies.done = begun.Add(time.Millisecond)
		}
		s.state.copies[way] = copies
		at, who := newHome("f1"), "f2"
		if c.role == Passing {
			at, who = newHome("f2"), "f1"
		}
		at.visitors[who] = &visitor{role: c.role, since: begun}
		var changed bool
		if c.role == Passing {
			changed = s.dismiss(ctx, at, "f1")
		} else {
			changed = s.approach(ctx, thing, at, "f2")
		}
		moved := at.visitors[who] == nil
		if changed != c.goesOn || moved != c.goesOn {
			t.Errorf("%s: changed %v, at %s with %v", name, changed, at.forwarder, at.visitors)
		}
	}
}

// An entry at the old home lasts as long as an idle connection may, though its connection goes on at the new one, or has ended there.
func TestWhatAForwarderPassesOnIsCountedWhereItGoes(t *testing.T) {
	s := testSwitchboard("f1", "f2")
	local := &rules.LocalTarget{Target: &rules.LocalTarget_Edge{Edge: "acme/lan"}}
	for name, targets := range map[string][]*rules.LocalTarget{"f1": nil, "f2": {local}} {
		s.results.rules[name] = &rules.RuleSet{Paths: []*rules.ServicePath{{ChainLabel: 16, EgressLabel: 101,
			Stages: []*rules.Stage{{Number: 1, Upstream: &rules.StageEnd{Local: targets}}}}}}
		s.state.statuses[name] = &rules.Status{Stages: []*rules.StageCounters{
			{ChainLabel: 16, EgressLabel: 101, Stage: 1, Direction: rules.Direction_DIRECTION_FORWARD, Flows: 3},
			{ChainLabel: 17, EgressLabel: 101, Stage: 1, Direction: rules.Direction_DIRECTION_REVERSE, Flows: 3}}}
	}
	if flows := s.flowsByLabel()[16]; flows != 3 {
		t.Errorf("%d connections, want the 3 of the new home", flows)
	}
}
