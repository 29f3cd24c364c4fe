package site

import (
	"testing"
	"time"

	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
)

const (
	preparing = control.VersionState_VERSION_STATE_PREPARING
	active    = control.VersionState_VERSION_STATE_ACTIVE
)

func TestTwoSitesFollowAChain(t *testing.T) {
	if !inOwnNetwork(t) {
		return
	}
	w := newWorld(t, "office", "cloud")
	w.tellDirectory()
	w.sites["cloud"].startController("firewall")
	prepare := &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: 16, CoordinatorSite: "office",
		DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli()}
	withLoad := &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: 16, CoordinatorSite: "office", DeadlineUnixMs: prepare.DeadlineUnixMs,
		Allocations: []*control.Allocation{{Position: 1, Loads: []*control.SiteLoad{{Site: "cloud", Load: 60}}}}}
	w.reserve("t1", "cloud", "vnf.firewall", withLoad)
	withEdge := &control.Prepare{Customer: "acme", Chain: "web", ChainLabel: 16, CoordinatorSite: "office", DeadlineUnixMs: prepare.DeadlineUnixMs,
		Edges: []*control.EdgeBinding{{Edge: "lan", EdgeCustomer: "acme", Ingress: true}}}
	w.reserve("t1", "office", "edge", withEdge)

	began := time.Now()
	w.tell("chain.acme.web", webChain(1, preparing))
	w.eventually("both sites apply revision 1", func() bool {
		return w.sites["office"].progress().AppliedRevision == 1 && w.sites["cloud"].progress().AppliedRevision == 1
	})
	t.Logf("prepared in %v", time.Since(began))
	if n := len(w.sites["office"].forwarder.current().Edges[0].Classifiers); n != 0 {
		t.Errorf("%d classifiers while the version is being prepared", n)
	}
	began = time.Now()
	w.tell("chain.acme.web", webChain(2, active))
	w.eventually("both sites apply revision 2", func() bool {
		return w.sites["office"].progress().AppliedRevision == 2 && w.sites["cloud"].progress().AppliedRevision == 2
	})
	t.Logf("activated in %v", time.Since(began))
	if n := len(w.sites["office"].forwarder.current().Edges[0].Classifiers); n != 1 {
		t.Errorf("%d classifiers, want 1", n)
	}
	if n := len(w.sites["cloud"].forwarder.current().Attachments); n != 2 {
		t.Errorf("%d attachments, want one of each instance", n)
	}
}
