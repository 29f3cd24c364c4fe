package e2e

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// natDeployment is a deployment of the VNF "nat".
func natDeployment(name, site string, capacity int, pool string) string {
	return fmt.Sprintf(`apiVersion: switchboard/v1
kind: VnfDeployment
metadata: {name: %s}
spec: {vnf: nat, site: %s, capacity: %d, instances: 2, addressPool: [%s]}
`, name, site, capacity, pool)
}

// TestDeletedDeploymentKeepsItsConnections takes a deployment away as the user guide says while connections run through it.
// A NAT's connections cannot move: they must end where they began, also when the site's process starts anew meanwhile.
func TestDeletedDeploymentKeepsItsConnections(t *testing.T) {
	const connections, port = 20, 5390
	l := useLaboratory(t)
	echoServer(t, l, "www", port)
	c := chainSpec{name: "leave", customer: "acme", edge: "office-lan", vnfs: []string{"west", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	original := natDeployment("nat-dc", "dc", 8000, "203.0.113.0/26")
	t.Cleanup(func() { l.restoreNAT(t, original) })
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	f := startFlows(t, l, "acme-host", server, connections)
	time.Sleep(500 * time.Millisecond)

	l.apply(t, natDeployment("nat-east", "edge-east", 8000, "203.0.113.64/26"))
	l.apply(t, natDeployment("nat-dc", "dc", 0, "203.0.113.0/26"))
	eventually(t, activation, func() error {
		for _, route := range l.routes(t, c) {
			if route.Sites[1] != "edge-east" {
				return fmt.Errorf("the route is over %v", route.Sites)
			}
		}
		return l.active(t, c)
	})
	f.longest()
	eventually(t, activation, func() error { // other chains that used it may still be leaving
		output, err := l.switchboard("delete", "deployment", "nat-dc")
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	time.Sleep(3 * time.Second)
	f.checkStall(t, l)
	l.crash(t, "site-dc")
	before := f.answers()
	time.Sleep(3 * time.Second)
	f.checkStall(t, l)
	if err := f.goOn(before, 1); err != nil {
		t.Error(err)
	}
	tracked := 0
	for _, machine := range []string{"nat-dc-1", "nat-dc-2"} {
		tracked += len(l.conntrack(t, machine, port))
	}
	if tracked != connections {
		t.Errorf("the deleted deployment's instances track %d connections, want %d", tracked, connections)
	}
	ports := l.openAndClose(t, "acme-host", server, 40)
	if on := l.perInstance(t, "nat", port, ports); on["nat-east-1"]+on["nat-east-2"] != 40 {
		t.Errorf("new connections are on %v", on)
	}
	if err := f.end(); err != nil { // both ends say that they have no more to send
		t.Error(err)
	}
	eventually(t, 3*time.Minute, func() error { // such a connection counts for another minute
		left, err := hostnet.NamespaceNames(l.name + ".nat-dc")
		if err == nil && len(left) > 0 {
			err = fmt.Errorf("%v are left", left)
		}
		return err
	})
}

// restoreNAT brings the laboratory's NAT back and takes the test's away.
func (l *laboratory) restoreNAT(t testing.TB, original string) {
	t.Helper()
	l.apply(t, original)
	if answer, err := l.client(t).List(context.Background(), connect.NewRequest(&api.ListRequest{Kind: "vnfdeployment", Name: "nat-east"})); err != nil || len(answer.Msg.Resources) == 0 {
		return
	}
	l.apply(t, natDeployment("nat-east", "edge-east", 0, "203.0.113.64/26"))
	eventually(t, activation, func() error {
		output, err := l.switchboard("delete", "deployment", "nat-east")
		if err != nil {
			return fmt.Errorf("%w: %s", err, strings.TrimSpace(output))
		}
		return nil
	})
}
