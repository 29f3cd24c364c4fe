package e2e

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// roamingGoal is what the paper needs for the steps of its table 2.
const roamingGoal = 600 * time.Millisecond

// roaming is when each step of table 2 of the paper was done, since the edge was applied. Step 1, the choice of the first
// VNF's site, is a computation of the Local Switchboard before it makes rules.
type roaming struct {
	// edgeRules and edgeApplied are of the new edge's forwarder: it is given the first VNF's forwarder, and forwards so.
	edgeRules, edgeApplied time.Duration
	// vnfRules and vnfApplied are of the first VNF's forwarder: it is given the new edge's, and forwards so.
	vnfRules, vnfApplied time.Duration
	// acknowledged is when apply returned, answered when the user had the first answer.
	acknowledged, answered time.Duration
}

// steps names the figures in the order of the table.
func (r roaming) steps() []struct {
	name string
	took time.Duration
} {
	return []struct {
		name string
		took time.Duration
	}{
		{"apply acknowledged", r.acknowledged},
		{"edge's forwarder is given the first VNF's", r.edgeRules},
		{"edge's forwarder has configured its data plane", r.edgeApplied},
		{"first VNF's forwarder is given the edge's", r.vnfRules},
		{"first VNF's forwarder has configured its data plane", r.vnfApplied},
		{"first packet answered", r.answered},
	}
}

// forwarderSteps tells when a site's forwarder is given rules that hold, and when it has applied them.
type forwarderSteps struct{ given, applied chan time.Time }

// watchForwarder follows a site's own buckets. The connection is of a controller, as the Local Switchboard's.
func (l *laboratory) watchForwarder(t testing.TB, ctx context.Context, site string, holds func(*rules.RuleSet) bool) forwarderSteps {
	t.Helper()
	steps := forwarderSteps{make(chan time.Time, 1), make(chan time.Time, 1)}
	var connection *bus.Connection
	l.inside(t, site, func() (err error) {
		connection, err = bus.Connect(ctx, bus.ConnectConfig{Agent: "e2e",
			CredentialsFile: filepath.Join(l.root, l.name, "sites", site, "store", "credentials", "controller.default.json")})
		return err
	})
	t.Cleanup(connection.Close)
	sets, err := connection.Local("rules").Watch(ctx, "f1")
	if err != nil {
		t.Fatal(err)
	}
	statuses, err := connection.Local("status").Watch(ctx, "f1")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		wanted, given, applied := uint64(0), steps.given, steps.applied
		for {
			select {
			case <-ctx.Done():
				return
			case e := <-sets:
				set := &rules.RuleSet{}
				if given != nil && proto.Unmarshal(e.Value, set) == nil && holds(set) {
					wanted = set.Generation
					given <- time.Now()
					given = nil
				}
			case e := <-statuses:
				status := &rules.Status{}
				if wanted != 0 && applied != nil && proto.Unmarshal(e.Value, status) == nil && status.AppliedGeneration >= wanted {
					applied <- time.Now()
					applied = nil
				}
			}
		}
	}()
	return steps
}

// roam applies the branch's edge and takes the time of each step until a user there has an answer. The first VNF of the
// chain is at edge-west.
func (l *laboratory) roam(t testing.TB, server netip.AddrPort) roaming {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	edge := l.watchForwarder(t, ctx, "edge-east", func(set *rules.RuleSet) bool {
		return slices.ContainsFunc(set.Edges, func(e *rules.Edge) bool { return e.Id == "acme/branch-lan" && len(e.Classifiers) > 0 })
	})
	first := l.watchForwarder(t, ctx, "edge-west", func(set *rules.RuleSet) bool {
		for _, path := range set.Paths {
			for _, stage := range path.Stages {
				if slices.ContainsFunc(stage.GetUpstream().GetRemote(), func(r *rules.RemoteTarget) bool {
					return stage.Number == 1 && r.Peer == "edge-east/f1" && r.Weight > 0
				}) {
					return true
				}
			}
		}
		return false
	})
	const file = "../../examples/edges/acme-branch.yaml"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents, mistakes := resource.ReadFile(file, text)
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	request := &api.ApplyRequest{}
	for _, d := range documents {
		request.Resources = append(request.Resources, d.Message)
	}
	answered := l.firstAnswer(t, ctx, "branch-host", server)
	began := time.Now()
	if _, err := l.client(t).Apply(ctx, connect.NewRequest(request)); err != nil {
		t.Fatal(err)
	}
	r := roaming{acknowledged: time.Since(began)}
	for _, step := range []struct {
		at   <-chan time.Time
		into *time.Duration
	}{{edge.given, &r.edgeRules}, {edge.applied, &r.edgeApplied}, {first.given, &r.vnfRules}, {first.applied, &r.vnfApplied}, {answered, &r.answered}} {
		select {
		case at := <-step.at:
			*step.into = at.Sub(began)
		case <-ctx.Done():
			t.Fatalf("a step of a minute was not done: %+v", r)
		}
	}
	return r
}

// firstAnswer tells when a machine's first connection to a server is accepted; it tries all the time.
func (l *laboratory) firstAnswer(t testing.TB, ctx context.Context, machine string, server netip.AddrPort) <-chan time.Time {
	t.Helper()
	namespace, err := hostnet.OpenNamespace(l.name + "." + machine)
	if err != nil {
		t.Fatal(err)
	}
	answered := make(chan time.Time, 1)
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(func() { cancel(); namespace.Close() })
	attempt := func() {
		var connection net.Conn
		err := namespace.Do(func() (err error) {
			dialer := net.Dialer{Timeout: time.Second, FallbackDelay: -1}
			connection, err = dialer.DialContext(ctx, "tcp", server.String())
			return err
		})
		if err != nil {
			return
		}
		at := time.Now()
		connection.Close()
		select {
		case answered <- at:
			cancel()
		default:
		}
	}
	go func() {
		for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
			go attempt()
		}
	}()
	return answered
}

// TestUserAppearsAtANewEdge: a customer's new edge joins the chain that is there (SB10).
func TestUserAppearsAtANewEdge(t *testing.T) {
	l := useLaboratory(t)
	l.roams(t, 3)
}

// roams measures several times, and returns the median of each step.
func (l *laboratory) roams(t testing.TB, times int) roaming {
	t.Helper()
	const port = 5360
	echoServer(t, l, "www", port)
	c := chainSpec{name: "roam", customer: "acme", edge: "office-lan", vnfs: []string{"west", "nat"},
		match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [tcp], destinationPorts: ["%d"]}`, port)}
	l.activate(t, c)
	server := netip.AddrPortFrom(netip.MustParseAddr(www), port)
	leave := func() {
		l.must(t, "delete", "edge", "branch-lan", "--customer", "acme", "--ignore-not-found")
		eventually(t, activation, func() error {
			if _, err := l.connectWithin("branch-host", server, 300*time.Millisecond); err == nil {
				return fmt.Errorf("the branch reaches the server without its edge")
			}
			return nil
		})
		time.Sleep(300 * time.Millisecond) // the last of the rules without it
	}
	t.Cleanup(leave)
	var all []roaming
	for range times {
		r := l.roam(t, server)
		t.Logf("%+v", r)
		all = append(all, r)
		leave()
	}
	median := func(of func(roaming) time.Duration) time.Duration {
		slices.SortFunc(all, func(a, b roaming) int { return int(of(a) - of(b)) })
		return of(all[len(all)/2])
	}
	return roaming{
		edgeRules: median(func(r roaming) time.Duration { return r.edgeRules }), edgeApplied: median(func(r roaming) time.Duration { return r.edgeApplied }),
		vnfRules: median(func(r roaming) time.Duration { return r.vnfRules }), vnfApplied: median(func(r roaming) time.Duration { return r.vnfApplied }),
		acknowledged: median(func(r roaming) time.Duration { return r.acknowledged }), answered: median(func(r roaming) time.Duration { return r.answered }),
	}
}
