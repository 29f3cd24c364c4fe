// Package api is the northbound API: switchboard.api.v1 over Connect (gRPC, gRPC-Web and JSON over HTTP from one
// definition), its listeners, its token and its errors.
//
// Invariants: nothing is served without the token; unknown fields in JSON are refused; every refusal has a Connect code,
// and a list of Violations as detail where fields are at fault.
package api

import (
	"context"
	"net/http"
	"slices"

	"connectrpc.com/connect"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/global"
)

// Backend does what the API asks; *global.Global is one.
type Backend interface {
	Apply(ctx context.Context, resources []*api.Resource, dryRun bool) ([]*api.ApplyOutcome, error)
	Delete(ctx context.Context, key chain.Key) error
	List(kind chain.Kind, customer, name string) []*api.Resource
	Changes() (changed <-chan struct{}, stop func())
	Events(kind chain.Kind, customer, name string, limit uint32) []*api.Event
	Trace(ctx context.Context, request *api.TraceRequest) (*api.TraceResponse, error)
	Capture(ctx context.Context, request *api.CaptureRequest, send func(*api.CaptureResponse) error) error
	Traffic(customer, name string) []*api.ChainTraffic
}

var _ Backend = (*global.Global)(nil)

// maximumRequest bounds one request in bytes.
const maximumRequest = 8 << 20

// Handler serves a backend to holders of a token.
func Handler(backend Backend, token string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(apiv1connect.NewSwitchboardServiceHandler(&service{backend: backend},
		connect.WithCodec(strictJSON{"json"}), connect.WithCodec(strictJSON{"json; charset=utf-8"}),
		connect.WithReadMaxBytes(maximumRequest), connect.WithInterceptors(refusals{})))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	return authenticated(token, mux)
}

// service implements the API's methods.
type service struct {
	apiv1connect.UnimplementedSwitchboardServiceHandler
	backend Backend
}

// Apply creates or changes resources, all or none.
func (s *service) Apply(ctx context.Context, r *connect.Request[api.ApplyRequest]) (*connect.Response[api.ApplyResponse], error) {
	if len(r.Msg.Resources) == 0 {
		return nil, &global.Invalid{Findings: []chain.Finding{{Field: "resources", Description: "is empty", Fix: "give at least one resource"}}}
	}
	outcomes, err := s.backend.Apply(ctx, r.Msg.Resources, r.Msg.DryRun)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&api.ApplyResponse{Outcomes: outcomes}), nil
}

// List lists resources of a kind.
func (s *service) List(_ context.Context, r *connect.Request[api.ListRequest]) (*connect.Response[api.ListResponse], error) {
	kind, err := kindOf(r.Msg.Kind)
	if err != nil {
		return nil, err
	}
	found, err := s.list(kind, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&api.ListResponse{Resources: found}), nil
}

// selection is what List and Watch select by.
type selection interface {
	GetCustomer() string
	GetName() string
	GetChain() string
}

// list lists resources of a kind; only routes are of a chain.
func (s *service) list(kind chain.Kind, by selection) ([]*api.Resource, error) {
	of := by.GetChain()
	if of != "" && kind != chain.KindRoute {
		return nil, &global.Invalid{Findings: []chain.Finding{{Field: "chain", Description: "selects routes, not resources of kind " + string(kind),
			Fix: "leave it out, or ask for kind route"}}}
	}
	found := s.backend.List(kind, by.GetCustomer(), by.GetName())
	return slices.DeleteFunc(found, func(r *api.Resource) bool { return of != "" && r.GetRoute().GetChain() != of }), nil
}

// Delete ends one resource.
func (s *service) Delete(ctx context.Context, r *connect.Request[api.DeleteRequest]) (*connect.Response[api.DeleteResponse], error) {
	kind, err := kindOf(r.Msg.Kind)
	if err != nil {
		return nil, err
	}
	if r.Msg.Name == "" {
		return nil, &global.Invalid{Findings: []chain.Finding{{Field: "name", Description: "is missing", Fix: "name the resource"}}}
	}
	key := chain.Key{Kind: kind, Customer: chain.CustomerName(r.Msg.Customer), Name: r.Msg.Name}
	if err := s.backend.Delete(ctx, key); err != nil {
		return nil, err
	}
	return connect.NewResponse(&api.DeleteResponse{}), nil
}

// ListEvents lists what happened, newest first.
func (s *service) ListEvents(_ context.Context, r *connect.Request[api.ListEventsRequest]) (*connect.Response[api.ListEventsResponse], error) {
	kind := chain.Kind("")
	if r.Msg.Kind != "" {
		var err error
		if kind, err = kindOf(r.Msg.Kind); err != nil {
			return nil, err
		}
	}
	return connect.NewResponse(&api.ListEventsResponse{Events: s.backend.Events(kind, r.Msg.Customer, r.Msg.Name, r.Msg.Limit)}), nil
}

// Trace follows matching packets through the forwarders, or one that it sends.
func (s *service) Trace(ctx context.Context, r *connect.Request[api.TraceRequest]) (*connect.Response[api.TraceResponse], error) {
	response, err := s.backend.Trace(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(response), nil
}

// Capture streams frames as ports of a site's forwarders receive and send them.
func (s *service) Capture(ctx context.Context, r *connect.Request[api.CaptureRequest], stream *connect.ServerStream[api.CaptureResponse]) error {
	return s.backend.Capture(ctx, r.Msg, stream.Send)
}

// GetTraffic shows present rates and counters of chains.
func (s *service) GetTraffic(_ context.Context, r *connect.Request[api.GetTrafficRequest]) (*connect.Response[api.GetTrafficResponse], error) {
	if of := r.Msg.Chain; of != "" && len(s.backend.List(chain.KindChain, r.Msg.Customer, of)) == 0 {
		key := chain.Key{Kind: chain.KindChain, Customer: chain.CustomerName(r.Msg.Customer), Name: of}
		return nil, &global.Refused{Reason: global.NotFound, Message: "there is no " + key.String()}
	}
	return connect.NewResponse(&api.GetTrafficResponse{Chains: s.backend.Traffic(r.Msg.Customer, r.Msg.Chain)}), nil
}
