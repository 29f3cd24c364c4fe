package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
)

// www is the laboratory's server on the Internet side.
const (
	www     = "198.51.100.80"
	wwwIPv6 = "2001:db8:ffff::80"
)

// activation is how long a chain may take to become active.
const activation = time.Minute

func (l *laboratory) client(t testing.TB) apiv1connect.SwitchboardServiceClient {
	t.Helper()
	token, err := os.ReadFile(l.tokenFile())
	if err != nil {
		t.Fatal(err)
	}
	return apiv1connect.NewSwitchboardServiceClient(&http.Client{Transport: bearer(strings.TrimSpace(string(token)))}, l.api)
}

// bearer is the API's token; it goes with every request.
type bearer string

// RoundTrip sends one request.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	request = request.Clone(request.Context())
	request.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(request)
}

// list reads resources of a kind over the API.
func (l *laboratory) list(t testing.TB, kind, customer, name string) []*api.Resource {
	t.Helper()
	answer, err := l.client(t).List(context.Background(), connect.NewRequest(&api.ListRequest{Kind: kind, Customer: customer, Name: name}))
	if err != nil {
		t.Fatal(err)
	}
	return answer.Msg.Resources
}

// chainSpec is a chain of the tests. Tests run beside each other by matching ports of their own.
type chainSpec struct {
	name, customer, edge string
	// match and vnfs are YAML in flow style.
	match string
	vnfs  []string
	// times multiplies a demand of 10 Mbit/s forward and 20 reverse. Where it is 0 the demand is 1 Mbit/s each, so little that measured
	// traffic never replaces it, however long a test takes.
	times int
}

func (c chainSpec) text() string {
	vnfs := make([]string, 0, len(c.vnfs))
	for _, vnf := range c.vnfs {
		if !strings.HasPrefix(vnf, "{") {
			vnf = "{vnf: " + vnf + "}"
		}
		vnfs = append(vnfs, vnf)
	}
	forward, reverse := 10*c.times, 20*c.times
	if c.times == 0 {
		forward, reverse = 1, 1
	}
	return fmt.Sprintf(`apiVersion: switchboard/v1
kind: Chain
metadata: {name: %s, customer: %s}
spec:
  ingress: {edges: [%s], match: %s}
  vnfs: [%s]
  egress: {edges: [internet]}
  demand: {forwardMbps: %d, reverseMbps: %d}
`, c.name, c.customer, c.edge, c.match, strings.Join(vnfs, ", "), forward, reverse)
}

// activate applies a chain, waits until it is active, and deletes it when the test ends.
func (l *laboratory) activate(t testing.TB, c chainSpec) {
	t.Helper()
	eventually(t, activation, func() error { return l.roomFor(t, c) })
	t.Cleanup(func() { l.remove(t, c) })
	l.change(t, c)
}

// roomFor says which chain of a test before is still ending, and has the chain's name or holds what it needs: the VNF
// "split" has room for little more than one.
func (l *laboratory) roomFor(t testing.TB, c chainSpec) error {
	t.Helper()
	for _, resource := range l.list(t, "chain", "", "") {
		one := resource.GetChain()
		holds := slices.ContainsFunc(one.GetSpec().GetVnfs(), func(v *api.ChainVnf) bool {
			return v.GetVnf() == "split" && slices.Contains(c.vnfs, "split")
		})
		same := resource.Metadata.Name == c.name && resource.Metadata.Customer == c.customer
		if same || holds && one.GetStatus().GetPhase() == api.ChainPhase_CHAIN_PHASE_DELETING {
			return fmt.Errorf("chain %s/%s is still there", resource.Metadata.Customer, resource.Metadata.Name)
		}
	}
	return nil
}

// change applies a chain and waits until this version of it is active.
func (l *laboratory) change(t testing.TB, c chainSpec) {
	t.Helper()
	l.apply(t, c.text())
	eventually(t, activation, func() error { return l.active(t, c) })
}

// active says why the last version of a chain is not active.
func (l *laboratory) active(t testing.TB, c chainSpec) error {
	found := l.list(t, "chain", c.customer, c.name)
	if len(found) != 1 {
		return fmt.Errorf("%d chains %s/%s", len(found), c.customer, c.name)
	}
	status := found[0].GetChain().GetStatus()
	if status.GetPhase() != api.ChainPhase_CHAIN_PHASE_ACTIVE || status.GetObservedGeneration() != found[0].GetMetadata().GetGeneration() {
		return fmt.Errorf("chain %s/%s is %s at generation %d of %d: %s %s", c.customer, c.name, status.GetPhase(),
			status.GetObservedGeneration(), found[0].GetMetadata().GetGeneration(), status.GetReasonFrom(), status.GetReason())
	}
	return nil
}

// remove deletes a chain, without waiting for its connections to end.
func (l *laboratory) remove(t testing.TB, c chainSpec) {
	t.Helper()
	l.must(t, "delete", "chain", c.name, "--customer", c.customer, "--wait=false", "--ignore-not-found")
}

// routes are the active routes of a chain.
func (l *laboratory) routes(t testing.TB, c chainSpec) []*api.RouteStatus {
	t.Helper()
	found := l.list(t, "chain", c.customer, c.name)
	if len(found) != 1 {
		t.Fatalf("%d chains %s/%s", len(found), c.customer, c.name)
	}
	var active []*api.RouteStatus
	for _, route := range found[0].GetChain().GetStatus().GetRoutes() {
		if route.State == api.RouteState_ROUTE_STATE_ACTIVE {
			active = append(active, route)
		}
	}
	return active
}

// instances are the healthy instances of a VNF, by name, with the machine that each is.
func (l *laboratory) instances(t testing.TB, vnf string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, resource := range l.list(t, "vnfinstance", "", "") {
		instance := resource.GetVnfInstance()
		if instance.GetVnf() == vnf && instance.GetState() == api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY {
			found[resource.GetMetadata().GetName()] = strings.TrimPrefix(instance.GetNamespace(), l.name+".")
		}
	}
	if len(found) == 0 {
		t.Fatalf("VNF %s has no healthy instance", vnf)
	}
	return found
}
