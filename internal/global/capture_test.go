package global

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	forwarder "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

// captureFrames runs a capture at a forwarder, and returns the frames it gave.
func captureFrames(ctx context.Context, from func(ctx context.Context, end bool) (*forwarder.CaptureReply, error)) (frames []string, err error) {
	pieces, ended := make(chan *api.CaptureResponse), make(chan error)
	go func() { ended <- captureAt(ctx, forwarderPlace{site: "office", forwarder: "f1"}, from, pieces) }()
	for {
		select {
		case piece := <-pieces:
			for _, f := range piece.Frames {
				frames = append(frames, string(f.Data))
			}
		case err := <-ended:
			return frames, err
		}
	}
}

func frame(text string) *forwarder.CaptureReply {
	return &forwarder.CaptureReply{Frames: []*forwarder.CapturedFrame{{Data: []byte(text)}}}
}

// A request that is under way when the capture's time is over is waited for, and what came after it is taken too.
func TestACaptureGivesAllUpToItsEnd(t *testing.T) {
	deadline := deadlineContext{context.Background(), make(chan struct{})}
	asked := 0
	frames, err := captureFrames(deadline, func(ctx context.Context, end bool) (*forwarder.CaptureReply, error) {
		asked++
		switch {
		case asked == 1:
			return frame("first"), nil
		case !end:
			close(deadline.done)
			return frame("under way"), ctx.Err()
		}
		return frame("last"), ctx.Err()
	})
	if got := strings.Join(frames, ", "); got != "first, under way, last" || err != nil {
		t.Errorf("frames %s, error %v", got, err)
	}
}

func TestACaptureThatAForwarderEndsIsAnError(t *testing.T) {
	asked := 0
	frames, err := captureFrames(context.Background(), func(context.Context, bool) (*forwarder.CaptureReply, error) {
		if asked++; asked > 1 {
			return nil, errors.New("another capture has begun")
		}
		return frame("first"), nil
	})
	if len(frames) != 1 || err == nil || err.Error() != "forwarder office/f1: another capture has begun" {
		t.Errorf("frames %v, error %v", frames, err)
	}
}

// Whoever goes away is waited for no longer than the request under way, and the session ends.
func TestACaptureWhoseAskerHasGoneEndsItsSession(t *testing.T) {
	ctx, leave := context.WithCancel(context.Background())
	last := false
	frames, err := captureFrames(ctx, func(_ context.Context, end bool) (*forwarder.CaptureReply, error) {
		leave()
		last = end
		return frame("unwanted"), nil
	})
	if len(frames) > 0 || !last || !errors.Is(err, context.Canceled) {
		t.Errorf("frames %v, ended %v, error %v", frames, last, err)
	}
}

// Forwarders without the port asked for are left out; where none has it, the error names what they have.
func TestACaptureAtAPortThatIsNowhereNamesThoseThatThereAre(t *testing.T) {
	places := []forwarderPlace{{"office", "f1"}, {"office", "f2"}}
	ports := map[string][]string{"f1": {"wan", "lan"}, "f2": {"wan", "vnf"}}
	capture := func(port string) (frames int, err error) {
		ctx, end := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer end()
		from := func(_ context.Context, p forwarderPlace, _ bool) (*forwarder.CaptureReply, error) {
			if !slices.Contains(ports[p.forwarder], port) {
				return &forwarder.CaptureReply{NoSuchPort: true, Ports: ports[p.forwarder]}, nil
			}
			return frame(p.forwarder), nil
		}
		err = captureAtAll(ctx, places, port, from, func(piece *api.CaptureResponse) error {
			frames += len(piece.Frames)
			return nil
		})
		return frames, err
	}
	for _, port := range []string{"wan", "lan", "vnf"} {
		if frames, err := capture(port); frames == 0 || err != nil {
			t.Errorf("%s: %d frames, error %v", port, frames, err)
		}
	}
	frames, err := capture("wlan")
	var invalid *Invalid
	if frames > 0 || !errors.As(err, &invalid) || invalid.Findings[0].Field != "port" || !strings.Contains(invalid.Findings[0].Fix, "lan, vnf, wan") {
		t.Errorf("%d frames, error %v", frames, err)
	}
}

// deadlineContext is a context whose time is over when the test says so.
type deadlineContext struct {
	context.Context
	done chan struct{}
}

func (c deadlineContext) Done() <-chan struct{} { return c.done }

func (c deadlineContext) Err() error {
	select {
	case <-c.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
