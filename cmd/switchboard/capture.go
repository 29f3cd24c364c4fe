package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/pcapng"
)

// captureFlags are those of `switchboard capture`.
type captureFlags struct {
	clientFlags
	customer, chain, port, direction, output string
	match                                    apiv1.Match
	snapLength                               uint32
	duration                                 time.Duration
	count                                    uint64
	size                                     uint64
}

// longestCapture is what the API takes.
const longestCapture = time.Hour

var captureDirections = map[string]apiv1.CaptureDirection{
	"both":     apiv1.CaptureDirection_CAPTURE_DIRECTION_UNSPECIFIED,
	"received": apiv1.CaptureDirection_CAPTURE_DIRECTION_RECEIVED,
	"sent":     apiv1.CaptureDirection_CAPTURE_DIRECTION_SENT,
}

func newCaptureCommand() *cobra.Command {
	flags := &captureFlags{}
	command := &cobra.Command{
		Use:   "capture SITE[/FORWARDER]",
		Short: "Capture what a site's forwarders receive and send, in pcapng format",
		Long: "Writes frames as they pass to standard output or a file, until --duration, --count or --size is reached or it is\n" +
			"interrupted. Frames in tunnels are matched by the packet inside, and packets of both directions of a connection match.\n" +
			"A forwarder has one capture at a time: a new one ends the one before.",
		Example: "  switchboard capture dc --customer acme --chain web | tshark -r -\n" +
			"  switchboard capture office/f1 --port wan0 --protocol tcp --destination-port 80 --snap-length 9216 --output web.pcapng",
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: completeSiteOf(&flags.clientFlags),
		RunE: func(command *cobra.Command, arguments []string) error {
			return flags.run(command, arguments[0])
		},
	}
	flags.add(command)
	f := command.Flags()
	f.StringVar(&flags.customer, "customer", "", "with --chain: the chain's owner")
	f.StringVar(&flags.chain, "chain", "", "only frames known to be of this chain")
	f.StringVar(&flags.port, "port", "", "only this port of the forwarders")
	f.StringVar(&flags.direction, "direction", "both", "received, sent or both")
	f.Uint32Var(&flags.snapLength, "snap-length", 128, "bytes of each frame, at most 9216")
	durationFlag(f, &flags.duration, "duration", time.Minute, "how long to capture")
	f.Uint64VarP(&flags.count, "count", "c", 0, "stop after so many frames (0: no such limit)")
	f.Uint64Var(&flags.size, "size", 1<<30, "stop before the file has more bytes")
	f.StringVarP(&flags.output, "output", "o", "-", "the file; - is standard output")
	addMatchFlags(command, &flags.match)
	completeFlag(command, "direction", fixed("received", "sent", "both"))
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	return command
}

func (c *captureFlags) run(command *cobra.Command, place string) error {
	direction, known := captureDirections[c.direction]
	switch {
	case !known:
		return usageError{fmt.Errorf("--direction %q: write received, sent or both", c.direction)}
	case c.duration < time.Millisecond || c.duration > longestCapture:
		return usageError{fmt.Errorf("--duration %v: write 1ms to %v", c.duration, longestCapture)}
	}
	site, forwarder, _ := strings.Cut(place, "/")
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	stream, err := client.Capture(ctx, connect.NewRequest(&apiv1.CaptureRequest{Site: site, Forwarder: forwarder, Customer: c.customer,
		Chain: c.chain, Match: &c.match, Port: c.port, Direction: direction, SnapLength: c.snapLength, DurationMs: uint32(c.duration.Milliseconds())}))
	if err != nil {
		return wrongFlags("capture", err, "captured")
	}
	// The file appears when there is something to write, so that a wrong request leaves none.
	if !stream.Receive() {
		return wrongFlags("capture", stream.Err(), "captured")
	}
	out, err := c.open(command)
	if err != nil {
		return err
	}
	frames, lost, err := c.write(out, stream)
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if err := stream.Err(); err != nil && command.Context().Err() == nil {
		return err
	}
	fmt.Fprintf(command.ErrOrStderr(), "%d frames captured, %d left out\n", frames, lost)
	return nil
}

// open is where the capture goes. A terminal is refused.
func (c *captureFlags) open(command *cobra.Command) (io.WriteCloser, error) {
	if c.output != "-" {
		return os.OpenFile(c.output, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	}
	out := command.OutOrStdout()
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 && file.Name() != os.DevNull {
			return nil, usageError{errors.New("capture: standard output is a terminal; write to a file with --output FILE or > FILE, or pipe it to tshark -r -")}
		}
	}
	return unclosed{out}, nil
}

// unclosed is standard output, which others may write to after this.
type unclosed struct{ io.Writer }

// Close does nothing.
func (unclosed) Close() error { return nil }

// write writes the frames of a stream, from the piece that was received, until there are enough or no more.
func (c *captureFlags) write(out io.Writer, stream *connect.ServerStreamForClient[apiv1.CaptureResponse]) (frames, lost uint64, err error) {
	counted := &counting{out: out}
	writer, err := pcapng.NewWriter(counted, c.snapLength)
	if err != nil {
		return 0, 0, err
	}
	var dropped uint64 // since the last frame
	for {
		piece := stream.Msg()
		lost, dropped = lost+piece.Lost, dropped+piece.Lost
		for _, f := range piece.Frames {
			frame := pcapng.Frame{Time: f.Time.AsTime(), Interface: f.Forwarder + "/" + f.Port, Sent: f.Sent, Length: f.Length, Data: f.Data, Dropped: dropped}
			if counted.bytes+pcapng.LongestFrame(frame) > c.size || c.count > 0 && frames == c.count {
				return frames, lost, nil
			}
			if err := writer.Write(frame); err != nil {
				return frames, lost, err
			}
			dropped = 0
			frames++
		}
		if c.count > 0 && frames == c.count || !stream.Receive() {
			return frames, lost, nil
		}
	}
}

// counting counts the bytes that pass.
type counting struct {
	out   io.Writer
	bytes uint64
}

// Write counts and passes on.
func (c *counting) Write(bytes []byte) (int, error) {
	n, err := c.out.Write(bytes)
	c.bytes += uint64(n)
	return n, err
}
