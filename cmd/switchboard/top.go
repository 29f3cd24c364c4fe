package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// topFlags are those of `switchboard top`.
type topFlags struct {
	clientFlags
	customer, output string
	once             bool
	interval         time.Duration
}

// topForms are what rates can be shown as.
var topForms = []string{"table", "json", "yaml"}

// shortestInterval between two looks keeps `top` from asking without a pause.
const shortestInterval = 10 * time.Millisecond

func newTopCommand() *cobra.Command {
	flags := &topFlags{}
	command := &cobra.Command{
		Use:   "top [CHAIN]",
		Short: "Show live rates of chains, per stage and direction",
		Long: "Shows what every site measures of the chains, again and again. Segments of TCP that pass a forwarder as one packet,\n" +
			"as from a host beside it, count as one. As JSON or YAML each refresh is a document of its own (--once: the only one).",
		Example:           "  switchboard top acme/web\n  switchboard top --once -o json",
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: completeChain(&flags.clientFlags, &flags.customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := checkOutput(flags.output, topForms...); err != nil {
				return err
			}
			if flags.interval < shortestInterval {
				return usageError{fmt.Errorf("--interval %v: write at least %v", flags.interval, shortestInterval)}
			}
			request := &apiv1.GetTrafficRequest{Customer: flags.customer}
			if len(arguments) > 0 {
				t, err := parseTarget([]string{"chain", arguments[0]}, flags.customer)
				if err != nil {
					return err
				}
				request.Customer, request.Chain = t.customer, t.name
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			return top(command.Context(), command.OutOrStdout(), client, request, flags)
		},
	}
	flags.add(command)
	command.Flags().StringVar(&flags.customer, "customer", "", "show this customer's only")
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	addOutput(command, &flags.output, topForms...)
	command.Flags().BoolVar(&flags.once, "once", false, "show once and end")
	durationFlag(command.Flags(), &flags.interval, "interval", time.Second, "how often to look")
	return command
}

// clearScreen moves to the upper left corner and clears what follows.
const clearScreen = "\x1b[H\x1b[J"

func top(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, request *apiv1.GetTrafficRequest, flags *topFlags) error {
	screen := flags.output == "table" && !flags.once && isTerminal(out)
	for first := true; ; first = false {
		answer, err := client.GetTraffic(ctx, connect.NewRequest(request))
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return plain(err)
		}
		switch {
		case screen:
			fmt.Fprint(out, clearScreen)
		case !first && flags.output == "yaml":
			fmt.Fprintln(out, "---")
		case !first && flags.output == "table":
			fmt.Fprintln(out)
		}
		err = writeList(out, flags.output, "TrafficList", answer.Msg.Chains, func() [][]string { return trafficRows(answer.Msg.Chains) })
		if err != nil || flags.once {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(flags.interval):
		}
	}
}

// isTerminal reports whether somebody watches the output, rather than a file or another program taking it.
func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// dropped is "no_target 4, mtu_exceeded 1": most first.
func dropped(drops map[string]uint64) string {
	reasons := slices.SortedFunc(maps.Keys(drops), func(a, b string) int {
		return cmp.Or(cmp.Compare(drops[b], drops[a]), cmp.Compare(a, b))
	})
	for i, reason := range reasons {
		reasons[i] = fmt.Sprintf("%s %d", reason, drops[reason])
	}
	return cmp.Or(strings.Join(reasons, ", "), "-")
}

func trafficRows(chains []*apiv1.ChainTraffic) [][]string {
	rows := [][]string{{"CHAIN", "LABEL", "DIRECTION", "STAGE", "SITE", "MBIT/S", "PACKETS/S", "PACKETS", "BYTES", "NEW FLOWS", "DROPS"}}
	for _, c := range chains {
		for _, s := range c.Stages {
			direction := "forward"
			if s.Reverse {
				direction = "reverse"
			}
			label := fmt.Sprint(s.ChainLabel)
			if state := resource.Word(s.State); s.State != apiv1.RouteState_ROUTE_STATE_ACTIVE && state != "" {
				label += "(" + state + ")"
			}
			rows = append(rows, []string{path(c.Customer, c.Chain), label, direction, fmt.Sprint(s.Stage), s.Site, fmt.Sprintf("%.2f", s.Mbps),
				fmt.Sprintf("%.0f", s.PacketsPerSecond), fmt.Sprint(s.Packets), fmt.Sprint(s.Bytes), fmt.Sprint(s.NewFlows), dropped(s.Drops)})
		}
	}
	return rows
}
