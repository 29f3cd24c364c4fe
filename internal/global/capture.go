package global

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/matches"
)

const (
	defaultCaptureTime = time.Minute
	maximumCaptureTime = time.Hour
	defaultSnapLength  = 128
	maximumSnapLength  = 9216
	// capturePause is how long a forwarder that had nothing is left alone.
	capturePause = 50 * time.Millisecond
	// captureAnswer is how long one request to a forwarder may take. A session ends a little before that by itself.
	captureAnswer = 2 * time.Second
)

// Capture streams frames as ports of a site's forwarders receive and send them, until its time is over or ctx ends. `send`
// gets the first piece of each forwarder, which may be empty, once it captures.
func (g *Global) Capture(ctx context.Context, request *api.CaptureRequest, send func(*api.CaptureResponse) error) error {
	ask, err := captureRequest(request)
	if err != nil {
		return err
	}
	places, err := g.capturePlaces(request)
	if err != nil {
		return err
	}
	duration := cmp.Or(time.Duration(request.DurationMs)*time.Millisecond, defaultCaptureTime)
	life, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	failed := captureAtAll(life, places, request.Port, func(ctx context.Context, p forwarderPlace, end bool) (*forwarder.CaptureReply, error) {
		request := proto.CloneOf(ask)
		request.End = end
		return g.captured(ctx, p, request)
	}, send)
	if failed == nil || errors.Is(failed, context.Canceled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return failed
}

// captureAtAll sends what some forwarders capture, until ctx ends or one of them fails. Those that have no port of the name asked for are left
// out; it is an error where none has one. `from` takes what there is at a forwarder; `end` says that it is for the last time.
func captureAtAll(ctx context.Context, places []forwarderPlace, port string,
	from func(ctx context.Context, p forwarderPlace, end bool) (*forwarder.CaptureReply, error), send func(*api.CaptureResponse) error) error {
	life, cancel := context.WithCancel(ctx)
	defer cancel()
	pieces, failures := make(chan *api.CaptureResponse), make(chan error, len(places))
	for _, p := range places {
		here := func(ctx context.Context, end bool) (*forwarder.CaptureReply, error) { return from(ctx, p, end) }
		go func() { failures <- captureAt(life, p, here, pieces) }()
	}
	var failed error
	fail := func(err error) {
		if err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	var others noPort // ports of forwarders that have not the one asked for
	for running, lacking := len(places), 0; running > 0; {
		select {
		case piece := <-pieces:
			fail(send(piece))
		case err := <-failures:
			running--
			var ports noPort
			if errors.As(err, &ports) {
				others, lacking, err = append(others, ports...), lacking+1, nil
			}
			fail(err)
			if lacking == len(places) {
				fail(others.refusal(port))
			}
		}
	}
	return failed
}

// captureRequest checks what was asked for and says it as forwarders hear it.
func captureRequest(request *api.CaptureRequest) (*forwarder.CaptureRequest, error) {
	f := &chain.Findings{}
	match := matches.Parse("match.", request.GetMatch(), f)
	if len(match.Vlans) > 0 {
		f.Add("match.vlans", "packets bear a VLAN only as they enter at an edge", "name the chain that takes the VLAN")
	}
	if request.DurationMs > uint32(maximumCaptureTime.Milliseconds()) {
		f.Add("durationMs", "more than 3600000", "write at most 3600000")
	}
	if request.SnapLength > maximumSnapLength {
		f.Add("snapLength", "more than 9216", "write at most 9216")
	}
	if (request.Customer == "") != (request.Chain == "") {
		f.Add("chain", "a chain has a customer", "give both customer and chain, or neither")
	}
	if len(f.All) > 0 {
		return nil, &Invalid{f.All}
	}
	session := make([]byte, 16)
	if _, err := rand.Read(session); err != nil {
		return nil, err
	}
	return &forwarder.CaptureRequest{Session: session, Match: matches.Rule(match), BothDirections: true, Customer: request.Customer,
		Chain: request.Chain, Port: request.Port, Direction: forwarder.CaptureDirection(request.Direction),
		SnapLength: cmp.Or(request.SnapLength, defaultSnapLength)}, nil
}

// capturePlaces are the forwarders that are asked.
func (g *Global) capturePlaces(request *api.CaptureRequest) ([]forwarderPlace, error) {
	if request.Chain != "" {
		key := chainKey(request.Customer, request.Chain)
		g.mu.Lock()
		_, exists := g.messages[key]
		g.mu.Unlock()
		if !exists {
			return nil, g.noSuch(key)
		}
	}
	var names []string
	places := slices.DeleteFunc(g.liveForwarders(), func(p forwarderPlace) bool {
		names = append(names, p.String())
		return p.site != request.Site || request.Forwarder != "" && p.forwarder != request.Forwarder
	})
	if len(places) > 0 {
		return places, nil
	}
	slices.Sort(names)
	wanted := strings.TrimSuffix(request.Site+"/"+request.Forwarder, "/")
	return nil, &Refused{NotFound, fmt.Sprintf("no forwarder of %s is alive; alive are: %s", wanted, strings.Join(names, ", "))}
}

// noPort is what a forwarder says that has no port of the name asked for: the ports that it has.
type noPort []string

// Error tells them.
func (n noPort) Error() string { return "its ports are: " + strings.Join(n, ", ") }

// refusal is what the asker is told where no forwarder has the port.
func (n noPort) refusal(port string) error {
	slices.Sort(n)
	f := &chain.Findings{}
	fix := "wait until there are some, or leave it out"
	if len(n) > 0 {
		fix = "write one of " + strings.Join(slices.Compact(n), ", ") + ", or leave it out"
	}
	f.Add("port", fmt.Sprintf("no forwarder asked has a port %q", port), fix)
	return &Invalid{f.All}
}

// captureAt takes from one forwarder what it captures, until ctx ends, and ends its session. An answer that is not waited for is lost with its
// frames: so a request has its own time, and ctx is looked at in between. `from` takes what there is; `end` says that it is for the last time.
func captureAt(ctx context.Context, p forwarderPlace, from func(ctx context.Context, end bool) (*forwarder.CaptureReply, error),
	pieces chan<- *api.CaptureResponse) error {
	requests := context.WithoutCancel(ctx)
	for begun, end := false, false; !end; {
		end = ctx.Err() != nil
		reply, err := from(requests, end)
		switch {
		case ctx.Err() == context.Canceled:
			if !end {
				continue
			}
			return ctx.Err()
		case err != nil:
			return &Refused{Unavailable, fmt.Sprintf("forwarder %s: %v", p, err)}
		case reply.NoSuchPort && begun:
			return &Refused{Unavailable, fmt.Sprintf("forwarder %s: the port has gone", p)}
		case reply.NoSuchPort:
			return noPort(reply.Ports)
		}
		if !begun || len(reply.Frames) > 0 || reply.Lost > 0 {
			begun = true
			pieces <- capturePiece(p, reply)
		}
		if reply.More || end {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(capturePause):
		}
	}
	return nil
}

func (g *Global) captured(ctx context.Context, p forwarderPlace, ask *forwarder.CaptureRequest) (*forwarder.CaptureReply, error) {
	payload, err := proto.Marshal(ask)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, captureAnswer)
	defer cancel()
	answer, err := g.connection.Request(ctx, p.site, bus.Key("forwarder", p.forwarder, "capture"), payload)
	if err != nil {
		return nil, err
	}
	reply := &forwarder.CaptureReply{}
	return reply, proto.Unmarshal(answer, reply)
}

func capturePiece(p forwarderPlace, reply *forwarder.CaptureReply) *api.CaptureResponse {
	piece := &api.CaptureResponse{Lost: reply.Lost}
	for _, f := range reply.Frames {
		piece.Frames = append(piece.Frames, &api.CapturedFrame{Time: timestamppb.New(time.Unix(0, f.TimeUnixNs)), Forwarder: p.forwarder,
			Port: f.Port, Sent: f.Sent, Length: f.Length, Data: f.Data})
	}
	return piece
}
