package api

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// watchPause bounds how often a watcher is told; what changes more often is told once.
const watchPause = 50 * time.Millisecond

// Watch sends the resources that are there, a mark, and then every change. A slow reader gets the last state of each.
func (s *service) Watch(ctx context.Context, r *connect.Request[api.WatchRequest], stream *connect.ServerStream[api.WatchResponse]) error {
	kind, err := kindOf(r.Msg.Kind)
	if err != nil {
		return err
	}
	changed, stop := s.backend.Changes()
	defer stop()
	sent := map[chain.Key]*api.Resource{}
	for synchronised := false; ; {
		present, err := s.list(kind, r.Msg)
		if err != nil {
			return err
		}
		if err := sendChanges(stream, sent, present); err != nil {
			return err
		}
		if !synchronised {
			synchronised = true
			if err := stream.Send(&api.WatchResponse{Change: api.WatchChange_WATCH_CHANGE_SYNCHRONISED}); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(watchPause):
		}
	}
}

// sendChanges sends what differs from what was sent before.
func sendChanges(stream *connect.ServerStream[api.WatchResponse], sent map[chain.Key]*api.Resource, now []*api.Resource) error {
	there := map[chain.Key]bool{}
	for _, r := range now {
		key := resource.KeyOf(r)
		there[key] = true
		if old := sent[key]; old != nil && equalButTimes(old, r) {
			continue
		}
		if err := stream.Send(&api.WatchResponse{Change: api.WatchChange_WATCH_CHANGE_PRESENT, Resource: r}); err != nil {
			return err
		}
		sent[key] = r
	}
	for key, old := range sent {
		if there[key] {
			continue
		}
		if err := stream.Send(&api.WatchResponse{Change: api.WatchChange_WATCH_CHANGE_DELETED, Resource: old}); err != nil {
			return err
		}
		delete(sent, key)
	}
	return nil
}

// equalButTimes ignores when a site was last seen, which is always now.
func equalButTimes(a, b *api.Resource) bool {
	if a.GetSite().GetStatus() == nil || b.GetSite().GetStatus() == nil {
		return proto.Equal(a, b)
	}
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	a.GetSite().Status.LastSeen, b.GetSite().Status.LastSeen = nil, nil
	return proto.Equal(a, b)
}
