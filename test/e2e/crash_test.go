package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
)

// runRecord is what the supervisor notes of a process.
type runRecord struct {
	PID      int       `json:"pid"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
}

func (l *laboratory) record(t testing.TB, process string) runRecord {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(l.root, l.name, "run", process+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var record runRecord
	if err := json.Unmarshal(text, &record); err != nil {
		t.Fatal(err)
	}
	return record
}

// crash ends a process of the laboratory as kill -9 does, and waits until the supervisor has started it again.
func (l *laboratory) crash(t testing.TB, process string) {
	t.Helper()
	before := l.record(t, process)
	if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil {
		t.Fatalf("kill %s: %v", process, err)
	}
	eventually(t, activation, func() error {
		if now := l.record(t, process); now.PID == before.PID {
			return fmt.Errorf("%s was not started again", process)
		}
		return nil
	})
}

// TestEveryProcessMayCrash kills each process in turn. Connections run on, after a pause where what carries them was gone,
// and afterwards everything is as desired.
func TestEveryProcessMayCrash(t *testing.T) {
	const port = 5340
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "crash", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5340"]}`, vnfs: []string{"pair", "nat"}}
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	labels := fmt.Sprint(l.routes(t, c))
	for _, process := range l.processes(t) {
		t.Run(process, func(t *testing.T) {
			f := startFlows(t, l, "acme-host", server, 10)
			time.Sleep(300 * time.Millisecond)
			f.longest()
			l.crash(t, process)
			time.Sleep(time.Second)
			carries := strings.HasPrefix(process, "forwarder-") || process == "underlay"
			if !carries {
				f.checkStall(t, l)
			}
			eventually(t, activation, func() error { return l.settled(t, c) })
			if _, err := l.connectOnce("acme-host", server); err != nil {
				t.Errorf("new connection: %v", err)
			}
			if now := fmt.Sprint(l.routes(t, c)); now != labels {
				t.Errorf("the chain's routes were\n%s\nand are\n%s", labels, now)
			}
			if err := f.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestForwarderCrashKeepsChoices: weights have changed since connections chose their instances, so that nobody could make the
// choices again; then the forwarder that made them is killed. The firewalls drop what they do not know: a connection that
// moved would end.
func TestForwarderCrashKeepsChoices(t *testing.T) {
	const connections, port = 200, 5341
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "kept", customer: "acme", edge: "office-lan", match: `{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["5341"]}`, vnfs: []string{"pair", "nat"}}
	l.activate(t, c)
	t.Cleanup(func() { l.apply(t, pairDeployment(2, "[]")) })
	f := startFlows(t, l, "acme-host", netip.AddrPortFrom(netip.MustParseAddr(www), port), connections)
	l.deploy(t, 2, "[100, 900]")
	for _, process := range l.processes(t) {
		if !strings.HasPrefix(process, "forwarder-") {
			continue
		}
		time.Sleep(time.Second)
		f.longest()
		before := f.answers()
		l.crash(t, process)
		eventually(t, activation, func() error { return f.goOn(before, 1) })
		t.Logf("%s was killed: the longest wait for an answer was %s", process, f.longest())
	}
	if err := f.end(); err != nil {
		t.Error(err)
	}
}

// processes names those that the supervisor runs and that are Switchboard's.
func (l *laboratory) processes(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(l.root, l.name, "run"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range entries {
		if name := strings.TrimSuffix(entry.Name(), ".json"); !strings.HasPrefix(name, "http-") {
			names = append(names, name)
		}
	}
	return names
}

// settled says where the observed state is not the desired one.
func (l *laboratory) settled(t testing.TB, c chainSpec) error {
	t.Helper()
	if err := l.active(t, c); err != nil {
		return err
	}
	for _, resource := range l.list(t, "site", "", "") {
		status := resource.GetSite().GetStatus()
		name := resource.GetMetadata().GetName()
		if !status.GetConnected() {
			return fmt.Errorf("site %s is not connected", name)
		}
		for _, forwarder := range status.GetForwarders() {
			if !forwarder.Alive || forwarder.AppliedGeneration != forwarder.DesiredGeneration {
				return fmt.Errorf("forwarder %s/%s: alive %v, generation %d of %d", name, forwarder.Name, forwarder.Alive, forwarder.AppliedGeneration, forwarder.DesiredGeneration)
			}
		}
	}
	for _, resource := range l.list(t, "vnfinstance", "", "") {
		instance := resource.GetVnfInstance()
		draining := instance.GetState() == api.VnfInstanceState_VNF_INSTANCE_STATE_DRAINING // of a deployment that went
		if instance.GetState() != api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY && !draining {
			return fmt.Errorf("instance %s is %s: %s", resource.GetMetadata().GetName(), instance.GetState(), instance.GetReason())
		}
	}
	for _, resource := range l.list(t, "vnf", "", "") {
		if !resource.GetVnf().GetStatus().GetControllerConnected() {
			return fmt.Errorf("the controller of VNF %s is not connected", resource.GetMetadata().GetName())
		}
	}
	return nil
}
