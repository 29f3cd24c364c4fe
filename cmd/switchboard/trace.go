package main

import (
	"context"
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
}

func newTraceCommand() *cobra.Command {
	flags := &traceFlags{}
	command := &cobra.Command{
		Use:   "trace CHAIN --customer CUSTOMER",
		Short: "Follow packets of a chain through the forwarders, hop by hop",
		Example: "  switchboard trace web --customer acme --duration 5s\n" +
			"  switchboard trace web --customer acme --protocol tcp --destination-port 80",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			t, err := parseTarget([]string{"chain", arguments[0]}, flags.customer)
			if err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), flags.duration+answerPatience)
			defer cancel()
			answer, err := client.Trace(ctx, connect.NewRequest(&apiv1.TraceRequest{Customer: t.customer, Chain: t.name, Match: &flags.match,
				DurationMs: uint32(flags.duration.Milliseconds()), Limit: flags.limit}))
			if err != nil {
				return plain(err)
			}
			return writeHops(command.OutOrStdout(), answer.Msg.Hops)
		},
	}
	flags.add(command)
	f := command.Flags()
	f.StringVar(&flags.customer, "customer", "", "the chain's owner")
	f.DurationVar(&flags.duration, "duration", 3*time.Second, "how long to follow")
	f.Uint32Var(&flags.limit, "limit", 100, "how many decisions each forwarder tells at most")
	f.StringArrayVar(&flags.match.SourcePrefixes, "source", nil, "only packets from this prefix")
	f.StringArrayVar(&flags.match.DestinationPrefixes, "destination", nil, "only packets to this prefix")
	f.StringArrayVar(&flags.match.Protocols, "protocol", nil, "only this protocol")
	f.StringArrayVar(&flags.match.SourcePorts, "source-port", nil, "only from this port or range")
	f.StringArrayVar(&flags.match.DestinationPorts, "destination-port", nil, "only to this port or range")
	return command
}

func writeHops(out io.Writer, hops []*apiv1.TraceHop) error {
	if len(hops) == 0 {
		_, err := fmt.Fprintln(out, "no packet of the chain was seen")
		return err
	}
	rows := [][]string{{"TIME", "SITE", "STAGE", "DIRECTION", "LABELS", "FROM", "TO", "DECISION", "FLOW"}}
	start := hops[0].Time.AsTime()
	for _, h := range hops {
		direction, label := "forward", h.ChainLabel
		if h.Reverse {
			direction, label = "reverse", h.ChainLabel|1 // as the packet bears it
		}
		rows = append(rows, []string{fmt.Sprintf("+%.3f ms", float64(h.Time.AsTime().Sub(start).Microseconds())/1000), h.Site,
			fmt.Sprint(h.Stage), direction, fmt.Sprintf("%d/%d", label, h.EgressLabel), h.From, h.To, h.Decision, h.Flow})
	}
	return show.Rows(out, rows)
}
