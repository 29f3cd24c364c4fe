package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/timestamppb"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/show"
)

// eventForms are what `events` can be shown as.
var eventForms = []string{"table", "wide", "json", "yaml"}

// eventFlags are those of `switchboard events`.
type eventFlags struct {
	clientFlags
	customer, output string
	limit            uint32
}

// defaultEvents is how many events are shown where no limit is given.
const defaultEvents = 100

func newEventsCommand() *cobra.Command {
	flags := &eventFlags{}
	command := &cobra.Command{
		Use:               "events [KIND [NAME]]",
		Short:             "Show what happened, the latest last",
		Example:           "  switchboard events\n  switchboard events chain web --customer acme -o json",
		Args:              usageArgs(cobra.MaximumNArgs(2)),
		ValidArgsFunction: completeTarget(&flags.clientFlags, &flags.customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			return flags.show(command.Context(), command.OutOrStdout(), arguments)
		},
	}
	flags.add(command)
	addOutput(command, &flags.output, eventForms...)
	command.Flags().StringVar(&flags.customer, "customer", "", "show this customer's only")
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	command.Flags().Uint32Var(&flags.limit, "limit", defaultEvents, "how many of the latest")
	return command
}

// show shows the events of [KIND [NAME]].
func (flags *eventFlags) show(ctx context.Context, out io.Writer, arguments []string) error {
	if err := checkOutput(flags.output, eventForms...); err != nil {
		return err
	}
	request := &apiv1.ListEventsRequest{Customer: flags.customer, Limit: flags.limit}
	if len(arguments) > 0 {
		t, err := parseTarget(arguments, flags.customer)
		if err != nil {
			return err
		}
		request.Kind, request.Customer, request.Name = string(t.kind), t.customer, t.name
	}
	client, err := flags.client()
	if err != nil {
		return err
	}
	answer, err := client.ListEvents(ctx, connect.NewRequest(request))
	if err != nil {
		return plain(err)
	}
	slices.Reverse(answer.Msg.Events)
	return writeList(out, flags.output, "EventList", answer.Msg.Events, func() [][]string {
		return eventRows(answer.Msg.Events, time.Now(), flags.output == "wide")
	})
}

// eventRows is a table of events; a wide one says when each happened first and last.
func eventRows(events []*apiv1.Event, now time.Time, wide bool) [][]string {
	rows := [][]string{{"AGE", "SEVERITY", "REASON", "RESOURCE", "MESSAGE", "FROM"}}
	if wide {
		rows[0] = append(rows[0], "FIRST", "LAST")
	}
	for _, e := range events {
		message := e.Message
		if message == "" {
			message = "-"
		}
		age := show.Age(e.Time, now)
		if e.Count > 1 {
			age += fmt.Sprintf(" (x%d over %s)", e.Count, show.Span(e.Time.AsTime().Sub(e.FirstTime.AsTime())))
		}
		row := []string{age, e.Severity, e.Reason, fmt.Sprintf("%s/%s", e.Kind, path(e.Customer, e.Name)), message, e.Source}
		if wide {
			first := e.FirstTime
			if first == nil {
				first = e.Time
			}
			row = append(row, moment(first), moment(e.Time))
		}
		rows = append(rows, row)
	}
	return rows
}

// moment is a time to the second, as UTC.
func moment(t *timestamppb.Timestamp) string { return t.AsTime().UTC().Format(time.RFC3339) }
