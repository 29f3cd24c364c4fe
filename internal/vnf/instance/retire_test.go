package instance

import (
	"context"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// step takes the agent's step towards what is wanted, whatever comes of it.
func step(a *Agent, w *Wanted) { a.reconcile(context.Background(), w, 1) }

func exists(a *Agent, instance string) bool {
	return hostnet.NamespaceExists(a.config.Prefix + instance)
}

// drained says that no connection uses any of the attachments.
func drained(all []vnf.Attachment) map[string]bool {
	ids := map[string]bool{}
	for _, at := range all {
		ids[at.ID] = true
	}
	return ids
}

func TestDeletedDeploymentKeepsItsConnections(t *testing.T) {
	privateNamespace(t)
	store := newMemory()
	a := testAgent(t, store)
	at := serve(t, a, firewall(t, "80"))
	w := openWire(t, at[16].IngressPort)
	expect(t, w, at[16], true, tcp(client, server, syn))

	step(a, &Wanted{})
	if len(a.last.Attachments) != 2 || a.last.Attachments[0].State != vnf.Draining || a.last.Attachments[0].Weight != 0 {
		t.Fatalf("a deleted deployment's attachments are %+v", a.last.Attachments)
	}
	expect(t, w, at[16], false, tcp(server, client, syn|ack))

	// The agent is away for a moment; it still knows what the instance was.
	again := testAgent(t, store)
	step(again, &Wanted{})
	if len(again.last.Attachments) != 2 || again.last.Instances[0].Deployment != "fw" {
		t.Fatalf("after a restart: %+v", again.last)
	}
	expect(t, w, at[16], true, tcp(client, server, ack))

	step(again, &Wanted{Drained: map[string]bool{at[18].ID: true}})
	if !exists(again, "fw-1") {
		t.Fatal("the instance is gone and one of its attachments has connections")
	}
	expect(t, w, at[16], true, tcp(client, server, ack))
	step(again, &Wanted{Drained: drained(again.last.Attachments)})
	if exists(again, "fw-1") || len(store.values) != 0 {
		t.Errorf("after the last connection: namespace %v, records %v", exists(again, "fw-1"), store.values)
	}
}

func TestDeletedDeploymentGoesAtTheDrainLimit(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	a.config.DrainLimit = 300 * time.Millisecond
	serve(t, a, firewall(t, "80"))
	step(a, &Wanted{})
	if !exists(a, "fw-1") {
		t.Fatal("gone before the limit")
	}
	time.Sleep(a.config.DrainLimit)
	step(a, &Wanted{})
	if exists(a, "fw-1") {
		t.Error("still there after the limit")
	}
}

func TestInstancesWithoutPlacesGoAtOnce(t *testing.T) {
	privateNamespace(t)
	store := newMemory()
	a := testAgent(t, store)
	step(a, &Wanted{Deployments: []Deployment{{Name: "idle", VNF: "other", Driver: "nftables-firewall", Instances: 1}}})
	// The agent is away while everything is taken back.
	again := testAgent(t, store)
	step(again, &Wanted{})
	if exists(again, "idle-1") || len(store.values) != 0 {
		t.Errorf("namespace %v, records %v", exists(again, "idle-1"), store.values)
	}
}

// Of three instances the two last are to go; the second has no connections before the third has none.
func TestInstancesDrainInAnyOrder(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	w := firewall(t, "80")
	w.Deployments[0].Instances = 3
	serve(t, a, w)
	all := a.last.Attachments
	w.Deployments[0].Instances, w.Drained = 1, map[string]bool{}
	for _, at := range all {
		w.Drained[at.ID] = at.Instance == "fw-2"
	}
	for range 3 {
		step(a, w)
	}
	if !exists(a, "fw-1") || exists(a, "fw-2") || !exists(a, "fw-3") {
		t.Errorf("fw-1 %v, fw-2 %v, fw-3 %v; want only fw-2 gone", exists(a, "fw-1"), exists(a, "fw-2"), exists(a, "fw-3"))
	}
}

func TestAnotherVNFUnderTheNameWaits(t *testing.T) {
	privateNamespace(t)
	a := testAgent(t, newMemory())
	w := firewall(t, "80")
	serve(t, a, w)
	w = filter(t)
	w.Deployments[0].Name = "fw"
	step(a, w)
	if len(a.last.Attachments) != 2 || a.last.Attachments[0].Kind != vnf.Gateway || a.last.Attachments[0].State != vnf.Draining {
		t.Fatalf("while the firewall has connections: %+v", a.last.Attachments)
	}
	w.Drained = drained(a.last.Attachments)
	step(a, w)
	step(a, w)
	if len(a.last.Attachments) != 2 || a.last.Attachments[0].Kind != vnf.Transparent || a.last.Attachments[0].State != vnf.Active {
		t.Errorf("afterwards: %+v", a.last.Attachments)
	}
}
