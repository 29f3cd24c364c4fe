package site

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// Connections may not stay with a forwarder that nobody can be behind: all its instances are dead, or its site has none at all.
// One that drains, and one that may have handed its own over to a sibling, keep theirs.
func TestForwardersThatServeNobodyAreWithdrawn(t *testing.T) {
	n := office("office", "a", "b", "c", "d", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 0)
	n.instance("c", "firewall", "fw-3", 0)
	n.instances["c"][0].dead = true
	n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"},
		"0.2: office a core", "0.2: office b core", "0.3: office c core", "0.3: office d core")
	in := n.inputs("office")
	sibling := n.forwarder("a")
	sibling.Forwarder, sibling.Address, sibling.VnfWeights, sibling.Serves = "f2", "192.0.2.98", nil, nil
	in.Remote = append(in.Remote, sibling)
	got := map[string]bool{}
	for _, target := range Compute(in).Rules["f1"].Paths[0].Stages[0].Downstream.Remote {
		got[target.Peer] = target.Withdrawn
		if target.Withdrawn && target.Weight > 0 {
			t.Errorf("%s is withdrawn with weight %d", target.Peer, target.Weight)
		}
	}
	want := map[string]bool{"a/f1": false, "b/f1": false, "c/f1": true, "d/f1": true}
	if !maps.Equal(got, want) {
		t.Errorf("withdrawn: %v, want %v", got, want)
	}
}

// Forwarders of one site give back what they have nobody for, so none is withdrawn, not even with dead instances only.
func TestSiblingsAreNotWithdrawn(t *testing.T) {
	for _, dead := range []bool{false, true} {
		n := office("office", "cloud")
		n.instance("office", "firewall", "fw-1", 100)
		n.instance("office", "firewall", "fw-2", 100)
		n.instances["office"][1].dead = dead
		n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office office cloud")
		in := n.inputs("office")
		in.Forwarders = append(in.Forwarders, in.Forwarders[0])
		in.Forwarders[1].Name, in.Forwarders[1].TunnelAddress, in.Forwarders[1].Interface = "f2", "192.0.2.77/24", "wan1"
		for i := range in.Attachments {
			if in.Attachments[i].Instance == "fw-2" {
				in.Attachments[i].Forwarder = "f2"
			}
		}
		var got *bool
		for _, target := range Compute(in).Rules["f1"].Paths[0].Stages[0].Downstream.Remote {
			if target.Peer == "office/f2" {
				got = &target.Withdrawn
			}
		}
		if got == nil || *got {
			t.Errorf("dead %v: office/f2 is withdrawn: %v", dead, got)
		}
	}
}

// placesOutOfUse is an instance at site a that serves the chain mail and lets nothing of the chain web through any more; b has another.
func placesOutOfUse() (n *network, web *control.ChainVersion) {
	n = office("office", "a", "b", "core")
	n.instance("a", "firewall", "fw-1", 100)
	n.instance("b", "firewall", "fw-2", 100)
	web = n.chain("acme", "web", 16, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "0.5: office a core", "0.5: office b core")
	n.chain("acme", "mail", 18, []string{"firewall"}, []string{"lan"}, []string{"inet"}, "1: office a core")
	for _, site := range n.order {
		n.compute(site)
	}
	n.instances["a"][0].outOfUse = []vnf.Place{{VNF: "firewall", ChainLabel: 16, EgressLabel: 103, Stage: 1}}
	return n, web
}

func TestForwardersAreWithdrawnFromThePlacesThatAreOutOfUse(t *testing.T) {
	n, _ := placesOutOfUse()
	n.golden(t)
}

// withdrawn are the peers that are withdrawn at an end of a path's stage.
func withdrawn(set *rules.RuleSet, label uint32, end func(*rules.Stage) *rules.StageEnd, stage uint32) (peers []string) {
	for _, p := range set.Paths {
		for _, s := range p.Stages {
			for _, target := range end(s).Remote {
				if p.ChainLabel == label && s.Number == stage && target.Withdrawn {
					peers = append(peers, target.Peer)
				}
			}
		}
	}
	return peers
}

// A forwarder without instances may pass on what comes for those that moved from it, as long as its sibling serves the place.
func TestSiblingsOfPlacesOutOfUseAreWithdrawnWithThem(t *testing.T) {
	for _, outOfUse := range []bool{false, true} {
		n, _ := placesOutOfUse()
		if !outOfUse {
			n.instances["a"][0].outOfUse = nil
		}
		in := n.inputs("office")
		sibling := n.forwarder("a")
		sibling.Forwarder, sibling.Address, sibling.VnfWeights, sibling.Serves, sibling.OutOfUse = "f0", "192.0.2.98", nil, nil, nil
		in.Remote = append(in.Remote, sibling)
		was := n.previous["office"].Paths[0].Stages[0].Downstream
		was.Remote = append(was.Remote, &rules.RemoteTarget{Peer: "a/f0"})
		got := slices.Contains(withdrawn(Compute(in).Rules["f1"], 16, (*rules.Stage).GetDownstream, 1), "a/f0")
		if got != outOfUse {
			t.Errorf("the place is out of use: %v; the sibling is withdrawn: %v", outOfUse, got)
		}
	}
}

// The chain is led around the place; connections that it has there still may not stay, until the place is of use again.
func TestWhereNoRouteLeadsAnyMorePlacesOutOfUseStayWithdrawn(t *testing.T) {
	n, web := placesOutOfUse()
	web.Routes = n.routes("1: office b core")
	// The instance at a still has the place, for connections that go on.
	drains := attached(n.instances["a"][0], n.instances["a"][0].outOfUse[0])
	look := func(step, want, sound string) {
		t.Helper()
		for site, end := range map[string]func(*rules.Stage) *rules.StageEnd{
			"office": (*rules.Stage).GetDownstream, "core": (*rules.Stage).GetUpstream} {
			in := n.inputs(site)
			for _, f := range in.Remote {
				if f.Site == "a" {
					f.OutOfUse = outOfUse([]vnf.Attachment{drains}, "f1", f.Serves)
				}
			}
			set, stage := Compute(in).Rules["f1"], map[string]uint32{"office": 1, "core": 2}[site]
			n.previous[site] = set
			if got := strings.Join(withdrawn(set, 16, end, stage), " "); got != want {
				t.Errorf("%s: site %s withdraws %q, want %q", step, site, got, want)
			}
			if got := strings.Join(withdrawn(set, 18, end, stage), " "); got != sound {
				t.Errorf("%s: site %s withdraws %q from the other chain, want %q", step, site, got, sound)
			}
		}
	}
	look("no route leads there", "a/f1", "")
	drains.State = vnf.Draining
	look("it works again, for what it has", "", "")
	n.instances["a"] = nil
	look("the instance is gone", "a/f1", "a/f1")
}

// A site of a version that says nothing of places, or not even what it serves, has taken none out of use by that.
func TestSitesThatSayLessAreNotWithdrawn(t *testing.T) {
	for what, forget := range map[string]func(*control.ForwarderRecord){
		"places":         func(f *control.ForwarderRecord) { f.OutOfUse = nil },
		"what it serves": func(f *control.ForwarderRecord) { f.OutOfUse, f.Serves = nil, nil },
	} {
		n, _ := placesOutOfUse()
		in := n.inputs("office")
		for _, f := range in.Remote {
			forget(f)
		}
		set := Compute(in).Rules["f1"]
		for _, label := range []uint32{16, 18} {
			if got := withdrawn(set, label, (*rules.Stage).GetDownstream, 1); len(got) > 0 {
				t.Errorf("sites that do not say %s: chain %d has %v withdrawn", what, label, got)
			}
		}
	}
}

// One of several instances of a forwarder is enough; what no instance serves at all is said for the VNF as a whole.
func TestPlacesAreOutOfUseWhereNothingWorks(t *testing.T) {
	at := func(forwarder, name string, stage uint32, state vnf.State) vnf.Attachment {
		return vnf.Attachment{Forwarder: forwarder, State: state, Place: vnf.Place{VNF: name, ChainLabel: 16, EgressLabel: 103, Stage: stage}}
	}
	attachments := []vnf.Attachment{
		at("f1", "firewall", 1, vnf.Dead), at("f1", "firewall", 1, vnf.Draining),
		at("f1", "firewall", 4, vnf.Dead), at("f1", "firewall", 3, vnf.Dead), at("f1", "firewall", 3, vnf.Dead),
		at("f2", "firewall", 3, vnf.Active), at("f2", "firewall", 1, vnf.Dead),
		at("f1", "nat", 2, vnf.Dead),
	}
	var got []string
	for _, place := range outOfUse(attachments, "f1", []string{"firewall"}) {
		got = append(got, fmt.Sprintf("%d/%d/%d", place.ChainLabel, place.EgressLabel, place.Stage))
	}
	if want := []string{"16/103/3", "16/103/4"}; !slices.Equal(got, want) {
		t.Errorf("out of use: %v, want %v", got, want)
	}
}
