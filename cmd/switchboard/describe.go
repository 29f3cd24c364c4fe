package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
	"github.com/switchboard-project/switchboard/internal/show"
)

func newDescribeCommand() *cobra.Command {
	flags := &clientFlags{}
	var customer string
	command := &cobra.Command{
		Use:               "describe KIND NAME",
		Short:             "Show all that is known of a resource: what it is to be, how it stands, what happened",
		Example:           "  switchboard describe chain web --customer acme",
		Args:              usageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeTarget(flags, &customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			t, err := parseTarget(arguments, customer)
			if err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			found, err := list(command.Context(), client, t)
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return t.missing()
			}
			for i, r := range found {
				if i > 0 {
					fmt.Fprintln(command.OutOrStdout())
				}
				if err := describe(command.Context(), command.OutOrStdout(), client, r); err != nil {
					return err
				}
			}
			return nil
		},
	}
	flags.add(command)
	command.Flags().StringVar(&customer, "customer", "", "the resource's owner")
	completeFlag(command, "customer", completeCustomer(flags))
	return command
}

// describedEvents is how many of the latest events describe shows.
const describedEvents = 20

func describe(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, r *apiv1.Resource) error {
	kind := resource.KindOf(r)
	text, err := resource.YAML([]*apiv1.Resource{r})
	if err != nil {
		return err
	}
	if _, err := out.Write(text); err != nil {
		return err
	}
	if kind == chain.KindChain {
		if err := describeRoutes(ctx, out, client, r); err != nil {
			return err
		}
	}
	answer, err := client.ListEvents(ctx, connect.NewRequest(&apiv1.ListEventsRequest{Kind: string(kind), Customer: r.Metadata.GetCustomer(),
		Name: r.Metadata.GetName(), Limit: describedEvents}))
	if err != nil {
		return plain(err)
	}
	fmt.Fprintln(out, "\nEVENTS")
	slices.Reverse(answer.Msg.Events)
	return show.Rows(out, eventRows(answer.Msg.Events, time.Now(), false))
}

// describeRoutes shows a chain's routes and the instances that serve it.
func describeRoutes(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, r *apiv1.Resource) error {
	routes, err := list(ctx, client, target{kind: chain.KindRoute, customer: r.Metadata.Customer, chain: r.Metadata.Name})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "\nROUTES")
	if err := show.Table(out, chain.KindRoute, routes, true, time.Now()); err != nil {
		return err
	}
	if joined := r.GetChain().GetStatus().GetJoined(); len(joined) > 0 {
		fmt.Fprintln(out, "\nJOINED")
		if err := show.Rows(out, show.JoinedRows(joined)); err != nil {
			return err
		}
	}
	instances, err := list(ctx, client, target{kind: chain.KindInstance})
	if err != nil {
		return err
	}
	owner := path(r.Metadata.Customer, r.Metadata.Name)
	instances = slices.DeleteFunc(instances, func(i *apiv1.Resource) bool { return !slices.Contains(i.GetVnfInstance().GetChains(), owner) })
	fmt.Fprintln(out, "\nINSTANCES")
	return show.Table(out, chain.KindInstance, instances, false, time.Now())
}
