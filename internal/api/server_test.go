package api

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/global"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// backend is a Global Switchboard that holds sites in memory and answers as it is told.
type backend struct {
	sites   []*api.Resource
	applied []*api.Resource
	fail    error
	changed chan struct{}
}

func (b *backend) Apply(_ context.Context, resources []*api.Resource, _ bool) ([]*api.ApplyOutcome, error) {
	b.applied = resources
	return []*api.ApplyOutcome{{Kind: "site", Metadata: resources[0].Metadata, Result: api.ApplyResult_APPLY_RESULT_CREATED}}, b.fail
}
func (b *backend) Delete(context.Context, chain.Key) error                { return b.fail }
func (b *backend) List(chain.Kind, string, string) []*api.Resource        { return b.sites }
func (b *backend) Changes() (<-chan struct{}, func())                     { return b.changed, func() {} }
func (b *backend) Events(chain.Kind, string, string, uint32) []*api.Event { return nil }
func (b *backend) Trace(context.Context, *api.TraceRequest) (*api.TraceResponse, error) {
	return nil, b.fail
}
func (b *backend) Capture(context.Context, *api.CaptureRequest, func(*api.CaptureResponse) error) error {
	return b.fail
}
func (b *backend) Traffic(string, string) []*api.ChainTraffic { return nil }

const testToken = "a-token-of-the-tests"

func site(name string) *api.Resource {
	return &api.Resource{Metadata: &api.Metadata{Name: name}, Kind: &api.Resource_Site{Site: &api.Site{Spec: &api.SiteSpec{Capacity: 7}}}}
}

// serve serves a backend on a loopback port until the test ends, and returns its address.
func serve(t *testing.T, b *backend) string {
	t.Helper()
	l, err := Listen("tcp:127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- Serve(ctx, Handler(b, testToken), l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String()
}

// post is what curl does.
func post(t *testing.T, address, method, token, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, address+"/switchboard.api.v1.SwitchboardService/"+method, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func TestCurlWithJSON(t *testing.T) {
	b := &backend{sites: []*api.Resource{site("hq")}}
	status, text := post(t, serve(t, b), "List", testToken, `{"kind": "sites"}`)
	if status != 200 || !strings.Contains(strings.ReplaceAll(text, " ", ""), `{"metadata":{"name":"hq"},"site":{"spec":{"capacity":7}}}`) {
		t.Fatalf("%d %s", status, text)
	}
}

func TestWrongCalls(t *testing.T) {
	invalid := &global.Invalid{Findings: []chain.Finding{{Resource: 1, Field: "spec.kind", Description: "is missing", Fix: "write one"}}}
	const good = `{"resources": [{"metadata": {"name": "s"}, "site": {"spec": {}}}]}`
	const noToken = "unauthenticated: the token is missing or wrong; send the header Authorization: Bearer TOKEN"
	kinds := strings.Join(resource.KindWords(), ", ")
	for _, c := range []struct {
		name, method, token, body string
		fail                      error
		status                    int
		want                      string
	}{
		{"no token", "List", "", `{"kind": "site"}`, nil, 401, noToken},
		{"wrong token", "List", "guess", `{"kind": "site"}`, nil, 401, noToken},
		{"prefix of the token", "List", testToken[:5], `{"kind": "site"}`, nil, 401, noToken},
		{"no kind", "List", testToken, `{}`, nil, 400, "invalid_argument: kind: is missing; use one of " + kinds + " [0 kind: is missing; use one of " + kinds + "]"},
		{"unknown kind", "List", testToken, `{"kind": "router"}`, nil, 400, "invalid_argument: kind: there is no kind router; use one of " + kinds + " [0 kind: there is no kind router; use one of " + kinds + "]"},
		{"unknown kind to watch events of", "ListEvents", testToken, `{"kind": "router"}`, nil, 400, "invalid_argument: kind: there is no kind router; use one of " + kinds + " [0 kind: there is no kind router; use one of " + kinds + "]"},
		{"unknown field", "List", testToken, `{"kid": "site"}`, nil, 400, `invalid_argument: unmarshal message: proto: (line 1:2): unknown field "kid"`},
		{"unknown field of a resource", "Apply", testToken, `{"resources": [{"metadata": {"nam": "s"}}]}`, nil, 400, `invalid_argument: unmarshal message: proto: (line 1:30): unknown field "nam"`},
		{"wrong type", "Apply", testToken, `{"resources": {}}`, nil, 400, "invalid_argument: unmarshal message: proto: syntax error (line 1:15): unexpected token {"},
		{"unknown enumeration", "Apply", testToken, `{"resources": [{"site": {"spec": {"kind": "CELLAR"}}}]}`, nil, 400, `invalid_argument: unmarshal message: proto: (line 1:43): invalid value for enum field kind: "CELLAR"`},
		{"two kinds in one", "Apply", testToken, `{"resources": [{"site": {}, "link": {}}]}`, nil, 400, `invalid_argument: unmarshal message: proto: (line 1:29): error parsing "link", oneof switchboard.api.v1.Resource.kind is already set`},
		{"not JSON", "List", testToken, `{`, nil, 400, "invalid_argument: unmarshal message: proto: unexpected EOF"},
		{"no resources", "Apply", testToken, `{}`, nil, 400, "invalid_argument: resources: is empty; give at least one resource [0 resources: is empty; give at least one resource]"},
		{"a mistake", "Apply", testToken, good, invalid, 400, "invalid_argument: spec.kind: is missing; write one [1 spec.kind: is missing; write one]"},
		{"delete without a name", "Delete", testToken, `{"kind": "site"}`, nil, 400, "invalid_argument: name: is missing; name the resource [0 name: is missing; name the resource]"},
		{"delete what is not there", "Delete", testToken, `{"kind": "site", "name": "x"}`, &global.Refused{Reason: global.NotFound, Message: "there is no site x"}, 404, "not_found: there is no site x"},
		{"delete what is used", "Delete", testToken, `{"kind": "site", "name": "x"}`, &global.Refused{Reason: global.InUse, Message: "site x is used"}, 400, "failed_precondition: site x is used"},
		{"delete what is observed", "Delete", testToken, `{"kind": "route", "name": "x"}`, &global.Refused{Reason: global.Observed, Message: "observed"}, 400, "invalid_argument: observed"},
		{"store away", "Apply", testToken, good, bus.ErrUnavailable, 503, "unavailable: bus: site server unavailable"},
		{"cancelled", "Apply", testToken, good, context.Canceled, 499, "canceled: context canceled"},
		{"something else", "Apply", testToken, good, errors.New("boom"), 500, "internal: boom"},
		{"no such method", "Reboot", testToken, `{}`, nil, 404, "404 page not found\n"},
		{"too large", "List", testToken, `{"kind": "` + strings.Repeat("x", maximumRequest) + `"}`, nil, 429, "resource_exhausted: message size 8388620 is larger than configured max 8388608"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, text := post(t, serve(t, &backend{fail: c.fail}), c.method, c.token, c.body)
			if got := whatIsWrong(text); status != c.status || got != c.want {
				t.Errorf("%d %s\nwant %d %s", status, got, c.status, c.want)
			}
		})
	}
}

// whatIsWrong is all that an answer says: code, message, and field: description; fix of each violation of each resource. What is
// no error of Connect is itself. The library for JSON puts spaces of either kind where it likes, so that nobody matches its words.
func whatIsWrong(answer string) string {
	var e struct {
		Code, Message string
		Details       []struct{ Type, Value string }
	}
	if json.Unmarshal([]byte(answer), &e) != nil {
		return answer
	}
	text := e.Code + ": " + strings.ReplaceAll(e.Message, "\u00a0", " ")
	for _, detail := range e.Details {
		found := &api.Violations{}
		value, err := base64.RawStdEncoding.DecodeString(detail.Value)
		if err != nil || detail.Type != "switchboard.api.v1.Violations" || proto.Unmarshal(value, found) != nil {
			return fmt.Sprintf("%s [detail %s %s: %v]", text, detail.Type, detail.Value, err)
		}
		for _, v := range found.Violations {
			text += fmt.Sprintf(" [%d %s: %s; %s]", v.Resource, v.Field, v.Description, v.Fix)
		}
	}
	return text
}

func TestViolationsTravelAsDetails(t *testing.T) {
	invalid := &global.Invalid{Findings: []chain.Finding{{Resource: 3, Field: "spec.a", Description: "b", Fix: "c"}, {Field: "d"}}}
	client := apiv1connect.NewSwitchboardServiceClient(http.DefaultClient, serve(t, &backend{fail: invalid}))
	request := connect.NewRequest(&api.ApplyRequest{Resources: []*api.Resource{site("s")}})
	request.Header().Set("Authorization", "Bearer "+testToken)
	_, err := client.Apply(context.Background(), request)
	var e *connect.Error
	if !errors.As(err, &e) || len(e.Details()) != 1 {
		t.Fatalf("error %v", err)
	}
	value, err := e.Details()[0].Value()
	if err != nil {
		t.Fatal(err)
	}
	found := value.(*api.Violations).Violations
	if len(found) != 2 || found[0].Resource != 3 || found[0].Field != "spec.a" || found[0].Description != "b" || found[0].Fix != "c" {
		t.Fatalf("violations %v", found)
	}
}

// gRPC needs HTTP/2, here without encryption.
func TestSpeaksGRPC(t *testing.T) {
	address := serve(t, &backend{sites: []*api.Resource{site("hq")}})
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	client := apiv1connect.NewSwitchboardServiceClient(&http.Client{Transport: &http.Transport{Protocols: protocols}}, address, connect.WithGRPC())
	request := connect.NewRequest(&api.ListRequest{Kind: "site"})
	request.Header().Set("Authorization", "Bearer "+testToken)
	answer, err := client.List(context.Background(), request)
	if err != nil || len(answer.Msg.Resources) != 1 {
		t.Fatalf("%v, %v", answer, err)
	}
}

func TestWatchTellsStateThenChanges(t *testing.T) {
	b := &backend{sites: []*api.Resource{site("hq"), site("west")}, changed: make(chan struct{})}
	client := apiv1connect.NewSwitchboardServiceClient(http.DefaultClient, serve(t, b))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	request := connect.NewRequest(&api.WatchRequest{Kind: "site"})
	request.Header().Set("Authorization", "Bearer "+testToken)
	stream, err := client.Watch(ctx, request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	next := func(change api.WatchChange, name string) {
		t.Helper()
		if !stream.Receive() || stream.Msg().Change != change || stream.Msg().GetResource().GetMetadata().GetName() != name {
			t.Fatalf("%v, %v; want %v of %q", stream.Msg(), stream.Err(), change, name)
		}
	}
	next(api.WatchChange_WATCH_CHANGE_PRESENT, "hq")
	next(api.WatchChange_WATCH_CHANGE_PRESENT, "west")
	next(api.WatchChange_WATCH_CHANGE_SYNCHRONISED, "")
	changedSite := site("west")
	changedSite.GetSite().Spec.Capacity = 8
	b.sites = []*api.Resource{changedSite}
	b.changed <- struct{}{}
	next(api.WatchChange_WATCH_CHANGE_PRESENT, "west")
	next(api.WatchChange_WATCH_CHANGE_DELETED, "hq")
}

func TestListenTellsWhatIsWrong(t *testing.T) {
	directory := t.TempDir()
	file := filepath.Join(directory, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for where, want := range map[string]string{
		"7470":         "write unix:PATH, tcp:ADDRESS:PORT or fd:N",
		"udp:1":        `"udp" is unknown`,
		"unix:":        "write unix:PATH",
		"unix:" + file: "the file is no socket",
		"fd:x":         "write the number of a file descriptor",
		"fd:999":       "it is no listening socket",
		"tcp:nowhere":  "missing port",
	} {
		if l, err := Listen(where); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", where, l, err, want)
		}
	}
}

func TestSocketFileIsPrivateAndReplacedWhenStale(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api")
	for range 2 { // the second time the file is left over
		l, err := Listen("unix:" + path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != socketMode {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
		if _, err := Listen("unix:" + path); err == nil || !strings.Contains(err.Error(), "another program answers there") {
			t.Fatalf("a socket in use: %v", err)
		}
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTokenIsMadeOnceAndPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "token")
	token, err := Token(path)
	if err != nil || len(token) < 40 {
		t.Fatalf("%q, %v", token, err)
	}
	if again, err := Token(path); err != nil || again != token {
		t.Fatalf("%q, %v; want the same", again, err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != tokenMode {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Fatalf("a token that others can read: %v", err)
	}
	if err := os.WriteFile(path, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Token(path); err == nil || !strings.Contains(err.Error(), "holds no token") {
		t.Fatalf("a short token: %v", err)
	}
}

// What comes over the wire never ends the server.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"kind": "site"}`))
	f.Add([]byte(`{"resources": [{"site": {"spec": {"capacity": 1e400}}}]}`))
	handler := Handler(&backend{}, testToken)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, method := range []string{"List", "Apply", "Delete"} {
			r, err := http.NewRequest(http.MethodPost, "/switchboard.api.v1.SwitchboardService/"+method, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+testToken)
			handler.ServeHTTP(discard{http.Header{}}, r)
		}
	})
}

// discard is a client that reads nothing.
type discard struct{ header http.Header }

func (d discard) Header() http.Header          { return d.header }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}

// Routes are selected by their chain; nothing else is.
func TestRoutesOfAChain(t *testing.T) {
	route := func(name, of string) *api.Resource {
		return &api.Resource{Metadata: &api.Metadata{Name: name}, Kind: &api.Resource_Route{Route: &api.Route{Chain: of}}}
	}
	b := &backend{sites: []*api.Resource{route("web-65536-1", "web"), route("mail-65538-1", "mail")}}
	client := apiv1connect.NewSwitchboardServiceClient(http.DefaultClient, serve(t, b))
	list := func(kind, of string) ([]*api.Resource, error) {
		request := connect.NewRequest(&api.ListRequest{Kind: kind, Chain: of})
		request.Header().Set("Authorization", "Bearer "+testToken)
		answer, err := client.List(context.Background(), request)
		if err != nil {
			return nil, err
		}
		return answer.Msg.Resources, nil
	}
	found, err := list("route", "mail")
	if err != nil || len(found) != 1 || found[0].Metadata.Name != "mail-65538-1" {
		t.Errorf("routes of mail: %v, %v", found, err)
	}
	if _, err := list("edge", "mail"); connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "chain") {
		t.Errorf("edges of a chain: %v", err)
	}
}
