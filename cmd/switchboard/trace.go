package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/show"
)

// traceFlags are those of `switchboard trace`.
type traceFlags struct {
	clientFlags
	customer string
	match    apiv1.Match
	duration time.Duration
	limit    uint32
	// A probe's.
	send, leave bool
	from        string
	vlan        uint32
}

// longestTrace is what the API takes.
const longestTrace = time.Minute

func newTraceCommand() *cobra.Command {
	flags := &traceFlags{}
	command := &cobra.Command{
		Use:   "trace CHAIN --customer CUSTOMER | trace --send --customer CUSTOMER --from EDGE ...",
		Short: "Follow packets of a chain through the forwarders, or send one, and show each hop's decision",
		Long: "Follows what passes and shows it when --duration is over, or with --send one packet that enters at an edge as if a host\n" +
			"behind it had sent it. It is a TCP SYN, a UDP datagram or an echo request, and is held at the egress edge unless --leave is\n" +
			"given. It ends with 0 where the packet came to the egress edge, and with 1 where it did not; the last line says where it\n" +
			"ended and why.",
		Example: "  switchboard trace web --customer acme --duration 5s\n" +
			"  switchboard trace web --customer acme --protocol tcp --destination-port 80\n" +
			"  switchboard trace --send --customer acme --from office-lan --protocol tcp \\\n" +
			"    --source 10.1.0.10 --destination 198.51.100.80 --destination-port 80",
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeChain(&flags.clientFlags, &flags.customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			if flags.duration < time.Millisecond || flags.duration > longestTrace {
				return usageError{fmt.Errorf("--duration %v: write 1ms to %v", flags.duration, longestTrace)}
			}
			if flags.send {
				return flags.sendProbe(command, arguments)
			}
			if len(arguments) == 0 || arguments[0] == "" || flags.leave || flags.from != "" || flags.vlan != 0 {
				return usageError{errors.New("trace: name a chain to follow it, or use --send with --from; --leave and --vlan go with --send")}
			}
			t, err := parseTarget([]string{"chain", arguments[0]}, flags.customer)
			if err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			answer, err := client.Trace(command.Context(), connect.NewRequest(&apiv1.TraceRequest{Customer: t.customer, Chain: t.name, Match: &flags.match,
				DurationMs: uint32(flags.duration.Milliseconds()), Limit: flags.limit}))
			if err != nil {
				return wrongFlags("trace", err, "followed")
			}
			warnCutShort(command.ErrOrStderr(), answer.Msg.CutShort)
			return writeHops(command.OutOrStdout(), answer.Msg.Hops)
		},
	}
	flags.add(command)
	f := command.Flags()
	f.StringVar(&flags.customer, "customer", "", "the chain's owner")
	durationFlag(f, &flags.duration, "duration", 3*time.Second, "how long to follow")
	f.Uint32Var(&flags.limit, "limit", 100, "how many decisions each forwarder tells at most")
	addMatchFlags(command, &flags.match)
	f.BoolVar(&flags.send, "send", false, "send a packet and follow it")
	f.StringVar(&flags.from, "from", "", "with --send: the edge where the packet enters")
	f.Uint32Var(&flags.vlan, "vlan", 0, "with --send: the packet's VLAN, at an edge with several")
	f.BoolVar(&flags.leave, "leave", false, "with --send: let the packet leave by the egress edge")
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	return command
}

// addMatchFlags adds the flags of a match.
func addMatchFlags(command *cobra.Command, match *apiv1.Match) {
	f := command.Flags()
	f.StringArrayVar(&match.SourcePrefixes, "source", nil, "only packets from this prefix")
	f.StringArrayVar(&match.DestinationPrefixes, "destination", nil, "only packets to this prefix")
	f.StringArrayVar(&match.Protocols, "protocol", nil, "only this protocol")
	f.StringArrayVar(&match.SourcePorts, "source-port", nil, "only from this port or range")
	f.StringArrayVar(&match.DestinationPorts, "destination-port", nil, "only to this port or range")
	completeFlag(command, "protocol", fixed("tcp", "udp", "icmp", "icmpv6"))
}

// warnCutShort says where a trace ended early.
func warnCutShort(out io.Writer, forwarders []string) {
	for _, f := range forwarders {
		fmt.Fprintf(out, "switchboard: another trace began at forwarder %s and ended this one: later packets are not in it\n", f)
	}
}

func writeHops(out io.Writer, hops []*apiv1.TraceHop) error {
	if len(hops) == 0 {
		_, err := fmt.Fprintln(out, "no packet was seen")
		return err
	}
	rows := [][]string{{"TIME", "SITE", "STAGE", "DIRECTION", "LABELS", "FROM", "TO", "DECISION", "FLOW"}}
	start := hops[0].Time.AsTime() // of a probe, clocks of sites may differ
	for _, h := range hops {
		direction, label := "forward", h.ChainLabel
		if h.Reverse {
			direction, label = "reverse", h.ChainLabel|1 // as the packet bears it
		}
		decision := h.Decision
		if h.Dropped {
			decision = "dropped: " + decision
		}
		rows = append(rows, []string{fmt.Sprintf("+%.3f ms", float64(h.Time.AsTime().Sub(start).Microseconds())/1000), h.Site,
			fmt.Sprint(h.Stage), direction, fmt.Sprintf("%d/%d", label, h.EgressLabel), h.From, h.To, decision, h.Flow})
	}
	return show.Rows(out, rows)
}
