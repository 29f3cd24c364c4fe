package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/show"
)

func newEventsCommand() *cobra.Command {
	flags := &clientFlags{}
	var customer string
	var limit uint32
	command := &cobra.Command{
		Use:               "events [KIND [NAME]]",
		Short:             "Show what happened, the latest last",
		Example:           "  switchboard events\n  switchboard events chain web --customer acme",
		Args:              usageArgs(cobra.MaximumNArgs(2)),
		ValidArgsFunction: completeTarget(flags, &customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			request := &apiv1.ListEventsRequest{Customer: customer, Limit: limit}
			if len(arguments) > 0 {
				t, err := parseTarget(arguments, customer)
				if err != nil {
					return err
				}
				request.Kind, request.Customer, request.Name = string(t.kind), t.customer, t.name
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), answerPatience)
			defer cancel()
			answer, err := client.ListEvents(ctx, connect.NewRequest(request))
			if err != nil {
				return plain(err)
			}
			slices.Reverse(answer.Msg.Events)
			return show.Rows(command.OutOrStdout(), eventRows(answer.Msg.Events, time.Now()))
		},
	}
	flags.add(command)
	command.Flags().StringVar(&customer, "customer", "", "show this customer's only")
	completeFlag(command, "customer", completeCustomer(flags))
	command.Flags().Uint32Var(&limit, "limit", 100, "how many of the latest")
	return command
}

func eventRows(events []*apiv1.Event, now time.Time) [][]string {
	rows := [][]string{{"AGE", "SEVERITY", "REASON", "RESOURCE", "MESSAGE", "FROM"}}
	for _, e := range events {
		message := e.Message
		if message == "" {
			message = "-"
		}
		age := show.Age(e.Time, now)
		if e.Count > 1 {
			age += fmt.Sprintf(" (x%d over %s)", e.Count, show.Span(e.Time.AsTime().Sub(e.FirstTime.AsTime())))
		}
		rows = append(rows, []string{age, e.Severity, e.Reason, fmt.Sprintf("%s/%s", e.Kind, path(e.Customer, e.Name)),
			message, e.Source})
	}
	return rows
}
