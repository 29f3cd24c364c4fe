package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/api"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/global"
	"github.com/switchboard-project/switchboard/internal/lab"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// update writes what the commands print now into testdata: go test ./cmd/switchboard -run Golden -update
var update = flag.Bool("update", false, "write the present output into testdata")

// recorded is a Global Switchboard as it stood once.
type recorded struct{ resources, applied []*apiv1.Resource }

func (r *recorded) Apply(_ context.Context, given []*apiv1.Resource, _ bool) ([]*apiv1.ApplyOutcome, error) {
	r.applied = given
	f := &chain.Findings{}
	var outcomes []*apiv1.ApplyOutcome
	for i, m := range given {
		f.Resource = i
		parsed, _ := resource.Parse(m, f)
		if c, ok := parsed.Spec.(chain.ChainSpec); ok && len(c.Vnfs) > 0 && c.Vnfs[0].Vnf == "cache" {
			f.Add("spec.vnfs[0].vnf", `there is no VNF "cache"`, "name one of firewall")
		}
		outcomes = append(outcomes, &apiv1.ApplyOutcome{Kind: string(parsed.Key.Kind), Metadata: m.Metadata,
			Result: apiv1.ApplyResult(1 + i%3)})
	}
	if len(f.All) > 0 {
		return nil, &global.Invalid{Findings: f.All}
	}
	return outcomes, nil
}

func (r *recorded) Delete(_ context.Context, key chain.Key) error {
	switch key.Name {
	case "hq":
		return &global.Refused{Reason: global.InUse, Message: key.String() + " is used by link office-hq; delete or change that first"}
	case "none":
		return &global.Refused{Reason: global.NotFound, Message: "there is no " + key.String()}
	}
	return nil
}

func (r *recorded) List(kind chain.Kind, customer, name string) []*apiv1.Resource {
	var found []*apiv1.Resource
	for _, one := range r.resources {
		key := resource.KeyOf(one)
		if key.Kind == kind && (customer == "" || string(key.Customer) == customer) && (name == "" || key.Name == name) {
			found = append(found, one)
		}
	}
	return found
}

func (r *recorded) Changes() (<-chan struct{}, func()) { return nil, func() {} }

func (r *recorded) Events(chain.Kind, string, string, uint32) []*apiv1.Event {
	return []*apiv1.Event{
		{Time: longAgo, Kind: "chain", Customer: "acme", Name: "web", Severity: "Normal", Reason: "Active", Message: "label 65536: office > firewall@west > hq", Source: "global-switchboard"},
		{Time: longAgo, Kind: "vnfinstance", Name: "firewall-west-1", Severity: "Warning", Reason: "InstanceDead", Message: "probe failed", Source: "site west"},
	}
}

func (r *recorded) Trace(_ context.Context, request *apiv1.TraceRequest) (*apiv1.TraceResponse, error) {
	hop := func(us int64, site string, stage uint32, from, to, decision string) *apiv1.TraceHop {
		return &apiv1.TraceHop{Time: timestamppb.New(longAgo.AsTime().Add(time.Duration(us) * time.Microsecond)), Site: site, Forwarder: "f1", Chain: "web",
			ChainLabel: 65536, EgressLabel: 16, Stage: stage, From: from, To: to, Decision: decision, Flow: "tcp 10.1.0.10:40000 > 198.51.100.80:80"}
	}
	response := &apiv1.TraceResponse{Hops: []*apiv1.TraceHop{hop(0, "office", 1, "edge:acme/office-lan", "forwarder:west/f1", "new flow"),
		hop(4100, "west", 1, "forwarder:office/f1", "vnf:firewall/firewall-west-1", "new flow")}}
	switch request.Probe.GetDestinationPort() {
	case 80:
		response.Outcome = &apiv1.ProbeOutcome{Reached: true, Description: "it came to edge -/internet at site hq, where it was held"}
	case 22:
		response.Hops[1].Decision, response.Hops[1].Dropped = "no_target", true
		response.Outcome = &apiv1.ProbeOutcome{Description: "forwarder west/f1 dropped it: no_target"}
	}
	if request.Limit == 7 {
		response.CutShort = []string{"west/f1"}
	}
	return response, nil
}

func (r *recorded) Capture(_ context.Context, request *apiv1.CaptureRequest, send func(*apiv1.CaptureResponse) error) error {
	if request.Site != "office" {
		return &global.Refused{Reason: global.NotFound, Message: "no forwarder of " + request.Site + " is alive; alive are: office/f1"}
	}
	frame := &apiv1.CapturedFrame{Time: longAgo, Forwarder: "f1", Port: "wan", Length: 60, Data: make([]byte, 14)}
	if err := send(&apiv1.CaptureResponse{}); err != nil {
		return err
	}
	return send(&apiv1.CaptureResponse{Frames: []*apiv1.CapturedFrame{frame, frame, frame}, Lost: 2})
}

func (r *recorded) Traffic(string, string) []*apiv1.ChainTraffic {
	return []*apiv1.ChainTraffic{{Customer: "acme", Chain: "web", Stages: []*apiv1.StageTraffic{
		{Stage: 1, Site: "office", ChainLabel: 65536, State: apiv1.RouteState_ROUTE_STATE_DRAINING, Packets: 7, Bytes: 700},
		{Stage: 1, Site: "office", ChainLabel: 65538, State: apiv1.RouteState_ROUTE_STATE_ACTIVE, Packets: 1000, Bytes: 1500000, PacketsPerSecond: 99.6, Mbps: 1.2, NewFlows: 3},
		{Stage: 2, Reverse: true, Site: "hq", ChainLabel: 65538, State: apiv1.RouteState_ROUTE_STATE_ACTIVE, Packets: 2000, Bytes: 3000000, PacketsPerSecond: 199, Mbps: 2.345, NewFlows: 0,
			Drops: map[string]uint64{"mtu_exceeded": 1, "no_target": 4, "hop_gone": 1}}}}}
}

var longAgo = timestamppb.New(time.Now().Add(-75 * time.Hour))

const recordedResources = `
kind: Site
metadata: {name: hq}
spec: {kind: data-centre, latitude: 39, longitude: -77.5, capacity: 16000}
---
kind: Site
metadata: {name: office}
spec: {kind: customer-premises}
---
kind: Link
metadata: {name: office-hq}
spec: {from: office, to: hq, latencyMs: 9.5, bandwidthMbps: 1000, backgroundMbps: 5}
---
kind: Vnf
metadata: {name: firewall}
spec:
  loadPerMbps: 1
  driver: nftables-firewall
  attachment: gateway
  controllerSite: hq
  options: [{name: rules, type: firewall-rules, required: true}, {name: default, type: verdict, defaultValue: drop}]
---
kind: VnfDeployment
metadata: {name: firewall-west}
spec: {vnf: firewall, site: west, capacity: 400, instances: 2, addressPool: [192.0.2.0/28]}
---
kind: Edge
metadata: {name: office-lan, customer: acme}
spec: {kind: vlan, site: office, interface: trunk0, vlan: 20, prefixes: [10.1.0.0/24]}
---
kind: Edge
metadata: {name: internet}
spec: {kind: internet, site: hq, interface: wan0, prefixes: [0.0.0.0/0, "::/0"]}
---
kind: Chain
metadata: {name: web, customer: acme}
spec:
  ingress: {edges: [office-lan], match: {protocols: [tcp], destinationPorts: ["80", "8000-8080"]}}
  vnfs:
    - vnf: firewall
      options: {default: drop, rules: [{verdict: accept, protocol: tcp, destinationPorts: ["80"]}]}
  egress: {edges: [internet]}
  demand: {forwardMbps: 50, reverseMbps: 200}
---
kind: Chain
metadata: {name: big, customer: globex}
spec:
  ingress: {edges: [internet]}
  egress: {edges: [internet]}
  demand: {forwardMbps: 5000}
`

func newRecorded(t *testing.T) *recorded {
	t.Helper()
	documents, mistakes := resource.ReadFile("recorded.yaml", []byte(recordedResources))
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	r := &recorded{}
	for _, d := range documents {
		d.Message.Metadata.Created, d.Message.Metadata.Generation = longAgo, 1
		r.resources = append(r.resources, d.Message)
	}
	r.resources[0].GetSite().Status = &apiv1.SiteStatus{Connected: true, Label: 16, Forwarders: []*apiv1.ForwarderStatus{
		{Name: "f1", Alive: true, FlowEntries: 12, Drops: map[string]uint64{"no_target": 2, "path_unknown": 1}}, {Name: "f2"}}}
	r.resources[1].GetSite().Status = &apiv1.SiteStatus{Label: 17}
	r.resources[3].GetVnf().Status = &apiv1.VnfStatus{ControllerConnected: true, Instances: 2, HealthyInstances: 1}
	r.resources[4].GetVnfDeployment().Status = &apiv1.VnfDeploymentStatus{Reserved: 250, HealthyInstances: 1}
	r.resources[5].GetEdge().Status = &apiv1.EdgeStatus{Up: true}
	r.resources[6].GetEdge().Status = &apiv1.EdgeStatus{Reason: "no interface wan0"}
	routes := []*apiv1.RouteStatus{
		{Name: "web-65538-1", Vnfs: []string{"firewall"}, ChainLabel: 65538, EgressLabel: 16, Fraction: 0.75, IngressSite: "office", Sites: []string{"west"}, EgressSite: "hq", LatencyMs: 9, State: apiv1.RouteState_ROUTE_STATE_ACTIVE},
		{Name: "web-65538-2", Vnfs: []string{"firewall"}, ChainLabel: 65538, EgressLabel: 16, Fraction: 0.25, IngressSite: "office", Sites: []string{"east"}, EgressSite: "hq", LatencyMs: 11, State: apiv1.RouteState_ROUTE_STATE_ACTIVE},
		{Name: "web-65536-1", Vnfs: []string{"firewall"}, ChainLabel: 65536, EgressLabel: 16, Fraction: 1, IngressSite: "office", Sites: []string{"west"}, EgressSite: "hq", LatencyMs: 9, State: apiv1.RouteState_ROUTE_STATE_DRAINING}}
	r.resources[7].GetChain().Status = &apiv1.ChainStatus{Phase: apiv1.ChainPhase_CHAIN_PHASE_ACTIVE, ObservedGeneration: 1, Routes: routes,
		Measured: &apiv1.Demand{ForwardMbps: 41.25, ReverseMbps: 180}, Planned: &apiv1.Demand{ForwardMbps: 51.5, ReverseMbps: 225}, ActivationMs: 123.4,
		Joined: []*apiv1.JoinedEdge{{Edge: "branch-lan", Site: "branch", ChainLabel: 65538, EgressLabel: 16, Sites: []string{"west"}, EgressSite: "hq", Vnfs: []string{"firewall"}}}}
	r.resources[8].GetChain().Status = &apiv1.ChainStatus{Phase: apiv1.ChainPhase_CHAIN_PHASE_REJECTED, ObservedGeneration: 1,
		Reason: "VNF firewall needs 10000 load units, 150 are free (west 150)", ReasonFrom: "traffic-engineering"}
	for _, status := range routes {
		r.resources = append(r.resources, &apiv1.Resource{Metadata: &apiv1.Metadata{Name: status.Name, Customer: "acme"},
			Kind: &apiv1.Resource_Route{Route: &apiv1.Route{Chain: "web", Status: status}}})
	}
	r.resources = append(r.resources, &apiv1.Resource{Metadata: &apiv1.Metadata{Name: "firewall-west-1"}, Kind: &apiv1.Resource_VnfInstance{
		VnfInstance: &apiv1.VnfInstance{Vnf: "firewall", Site: "west", Deployment: "firewall-west", Weight: 100, State: apiv1.VnfInstanceState_VNF_INSTANCE_STATE_DEAD,
			Reason: "probe failed", Namespace: "fw1", Chains: []string{"acme/web"}, Flows: 7, Packets: 4211, Since: longAgo}}})
	return r
}

// run executes a command line as main does and gives what it printed, then its exit code.
func run(t *testing.T, line string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return runIn(ctx, line)
}

// runIn is run until ctx ends.
func runIn(ctx context.Context, line string) string {
	root := newRootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetIn(strings.NewReader(""))
	root.SetArgs(strings.Fields(line)[1:])
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintln(&out, "switchboard:", err)
		fmt.Fprintf(&out, "exit %d\n", exitCode(err))
	}
	return out.String()
}

// connectTo makes commands speak to a recorded platform.
func connectTo(t *testing.T, r *recorded) {
	t.Helper()
	server := httptest.NewServer(api.Handler(r, "a-token-of-the-tests"))
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(serverVariable, server.URL)
	t.Setenv(tokenVariable, token)
	t.Setenv(configVariable, filepath.Join(t.TempDir(), "config.yaml"))
}

// The output of commands against a recorded platform is what testdata/cli.txt says.
func TestGoldenOutput(t *testing.T) {
	connectTo(t, newRecorded(t))
	const file = "testdata/cli.txt"
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var updated strings.Builder
	for i, section := range strings.Split("\n"+string(text), "\n$ ") {
		if i == 0 {
			continue
		}
		line, want, _ := strings.Cut(section, "\n")
		got := strings.NewReplacer(longAgo.AsTime().UTC().Format(time.RFC3339Nano), "2026-01-01T00:00:00Z",
			longAgo.AsTime().UTC().Format(time.RFC3339), "2026-01-01T00:00:00Z").Replace(run(t, line))
		fmt.Fprintf(&updated, "$ %s\n%s\n", line, got)
		if want = strings.TrimRight(want, "\n"); want != strings.TrimRight(got, "\n") && !*update {
			t.Errorf("%s:\n got\n%s\nwant\n%s", line, got, want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(updated.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What get shows can be applied again as it is: everything, every kind and one resource, as YAML and as JSON. What is only
// observed is skipped, and said to be.
func TestWhatIsShownCanBeAppliedAgain(t *testing.T) {
	r := newRecorded(t)
	connectTo(t, r)
	for _, what := range append(resource.KindWords(), "all", "chain acme/web", "route acme/web-65538-1") {
		for _, form := range []string{"yaml", "json"} {
			shown := run(t, "switchboard get "+what+" -o "+form)
			file := filepath.Join(t.TempDir(), "shown."+form)
			if err := os.WriteFile(file, []byte(shown), 0o600); err != nil {
				t.Fatal(err)
			}
			r.applied = nil
			output := run(t, "switchboard apply -f "+file)
			want := r.ofWords(what)
			observed := slices.DeleteFunc(slices.Clone(want), func(one *apiv1.Resource) bool { return !resource.Observed(resource.KindOf(one)) })
			if n := strings.Count(output, "skipped: it is observed, not applied\n"); n != len(observed) {
				t.Errorf("%s as %s: %d skipped, want %d:\n%s", what, form, n, len(observed), output)
			}
			want = slices.DeleteFunc(want, func(one *apiv1.Resource) bool { return resource.Observed(resource.KindOf(one)) })
			if len(r.applied) != len(want) || strings.Contains(output, "exit") != (len(want) == 0) {
				t.Errorf("%s as %s: %d applied, want %d:\n%s", what, form, len(r.applied), len(want), output)
				continue
			}
			for i, one := range want {
				if back := r.applied[i]; resource.KeyOf(back) != resource.KeyOf(one) || !proto.Equal(resource.Spec(back), resource.Spec(one)) {
					t.Errorf("%s as %s: %s came back as %v, not %v", what, form, resource.KeyOf(one), back, one)
				}
			}
		}
	}
}

// ofWords are the recorded resources that "get WORDS" shows, in its order.
func (r *recorded) ofWords(words string) []*apiv1.Resource {
	if words == "all" {
		var everything []*apiv1.Resource
		for _, word := range resource.KindWords() {
			everything = append(everything, r.ofWords(word)...)
		}
		return everything
	}
	t, err := parseTarget(strings.Fields(words), "")
	if err != nil {
		return nil
	}
	return r.List(t.kind, t.customer, t.name)
}

func TestServerThatIsAwayIsNamed(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-tests\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	output := run(t, "switchboard get sites --server http://127.0.0.1:1 --token-file "+token)
	if !strings.Contains(output, "server http://127.0.0.1:1") || !strings.Contains(output, "exit 1") {
		t.Fatal(output)
	}
}

// silentServer takes calls and never answers them, like a program that was stopped.
func silentServer(t *testing.T) string {
	t.Helper()
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-ended }))
	t.Cleanup(func() { close(ended); server.Close() })
	return server.URL
}

var spans = regexp.MustCompile(`within \d+(\.\d+)?(ms|s);`)

// Every command that waits in vain for an answer says for whose, for how long, and what can be done.
func TestServerThatIsSilentIsNamed(t *testing.T) {
	connectTo(t, newRecorded(t)) // for the token
	server := silentServer(t)
	t.Setenv(serverVariable, server)
	want := "switchboard: server " + server + ": no answer within TIME; is its Global Switchboard running and not stopped " +
		"(in a laboratory: `switchboard lab status`)? --request-timeout waits longer\nexit 1\n"
	for _, line := range []string{
		"get chains --request-timeout 100ms", "get all --request-timeout 100ms", "get chains --watch --request-timeout 100ms",
		"describe chain web --request-timeout 100ms", "apply -f testdata/good.yaml --request-timeout 100ms", "events --request-timeout 100ms",
		"top --request-timeout 100ms", "delete chain web --request-timeout 100ms", "delete chain web --timeout 100ms",
		"trace web --customer acme --duration 1ms --request-timeout 100ms", "wait chain web --for phase=active --request-timeout 100ms",
		"wait chain web --for phase=active --timeout 100ms",
	} {
		t.Run(line, func(t *testing.T) {
			begun := time.Now()
			if got := spans.ReplaceAllString(run(t, "switchboard "+line), "within TIME;"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if waited := time.Since(begun); waited < 100*time.Millisecond {
				t.Errorf("it gave up after %v", waited)
			}
		})
	}
}

// The limit is on the answer to one call: what is watched may be quiet for longer.
func TestQuietWatchGoesOn(t *testing.T) {
	connectTo(t, newRecorded(t))
	output := run(t, "switchboard wait chain web --customer acme --for phase=rejected --timeout 3s --request-timeout 1s")
	if want := "switchboard: chain acme/web: phase=rejected is not met after 3s: phase active\nexit 1\n"; output != want {
		t.Errorf("%q, want %q", output, want)
	}
}

func TestContextsOfTheConfigurationFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	t.Setenv(configVariable, file)
	t.Setenv(serverVariable, "")
	t.Setenv(tokenVariable, "")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("currentContext: lab\ncontexts:\n  - {name: lab, server: 'unix:/run/lab', tokenFile: /run/token}\n  - {name: other, server: 'http://h:1'}\n")
	for flags, want := range map[clientFlags]string{
		{}:                        "unix:/run/lab /run/token",
		{context: "other"}:        "http://h:1 " + defaultTokenFile(),
		{server: "http://flag:1"}: "http://flag:1 /run/token",
		{tokenFile: "/t"}:         "unix:/run/lab /t",
	} {
		server, token, err := flags.resolve()
		if got := server + " " + token; err != nil || got != want {
			t.Errorf("%+v: %s, %v; want %s", flags, got, err, want)
		}
	}
	_, _, err := (&clientFlags{context: "none"}).resolve()
	var usage usageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), `no context "none"`) {
		t.Errorf("unknown context: %v", err)
	}
	write("current: lab\n")
	if _, _, err := (&clientFlags{}).resolve(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "current") {
		t.Errorf("unknown field: %v", err)
	}
}

// What an interrupt ends says so, whatever it was waiting for, and ends with the code that shells give it.
func TestInterruptIsSaid(t *testing.T) {
	for _, c := range []struct {
		err         error
		interrupted bool
		message     string
		code        int
	}{
		{errors.New("no such chain"), false, "no such chain", 1},
		{usageError{errors.New("which chain?")}, false, "which chain?", 2},
		{context.Canceled, true, "interrupted", 130},
		{connect.NewError(connect.CodeCanceled, context.Canceled), true, "interrupted", 130},
		{lab.ErrInterrupted, true, lab.ErrInterrupted.Error(), 130},
	} {
		if message, code := outcome(c.err, c.interrupted); message != c.message || code != c.code {
			t.Errorf("%v: %q, %d; want %q, %d", c.err, message, code, c.message, c.code)
		}
	}
}

// What is interrupted says so and how long it waited, not that the time given has passed.
func TestInterruptedWait(t *testing.T) {
	connectTo(t, newRecorded(t))
	ctx, interrupt := context.WithCancel(context.Background())
	time.AfterFunc(1500*time.Millisecond, interrupt)
	output := runIn(ctx, "switchboard wait chain web --customer acme --for phase=rejected")
	if !regexp.MustCompile(`chain acme/web: interrupted after \S+, phase=rejected is not met: phase active`).MatchString(output) {
		t.Error(output)
	}
}

// Live rates do not clear the screen of a file or another program.
func TestTopIntoAFile(t *testing.T) {
	connectTo(t, newRecorded(t))
	ctx, interrupt := context.WithTimeout(context.Background(), 1500*time.Millisecond)
	defer interrupt()
	output := runIn(ctx, "switchboard top --interval 10ms")
	if strings.Contains(output, "\x1b") || strings.Count(output, "CHAIN") < 2 {
		t.Errorf("%q", output)
	}
}

// Each refresh of live rates is a document of its own, which programs can read.
func TestTopAsDocuments(t *testing.T) {
	connectTo(t, newRecorded(t))
	for form, decode := range map[string]func(io.Reader) func(any) error{
		"json": func(r io.Reader) func(any) error { return json.NewDecoder(r).Decode },
		"yaml": func(r io.Reader) func(any) error { return yaml.NewDecoder(r).Decode },
	} {
		ctx, interrupt := context.WithTimeout(context.Background(), 1500*time.Millisecond)
		output := runIn(ctx, "switchboard top --interval 10ms -o "+form)
		interrupt()
		next := decode(strings.NewReader(output))
		for i := range 2 {
			var document struct {
				Kind  string
				Items []struct {
					Chain  string
					Stages []struct{ Site string }
				}
			}
			if err := next(&document); err != nil || document.Kind != "TrafficList" || len(document.Items) != 1 ||
				document.Items[0].Chain != "web" || len(document.Items[0].Stages) != 3 {
				t.Errorf("document %d as %s: %v, %+v in\n%s", i, form, err, document, output)
			}
		}
	}
}

// The examples' directories can be applied as they are; what changes a chain changes one of them.
func TestExamplesCanBeAppliedAsAWhole(t *testing.T) {
	keys := map[chain.Key]bool{}
	for _, directory := range []string{"../../examples/chains", "../../examples/edges", "../../examples/changes"} {
		documents, mistakes, err := readResources([]string{directory}, nil)
		if err != nil || len(mistakes) > 0 || len(documents) == 0 {
			t.Errorf("%s: %d resources, %v, %v", directory, len(documents), mistakes, err)
		}
		for _, d := range documents {
			key := resource.KeyOf(d.Message)
			if changes := filepath.Base(directory) == "changes"; changes != keys[key] {
				t.Errorf("%s: %s is known already: %v", d.Source, key, keys[key])
			}
			keys[key] = true
		}
	}
}
