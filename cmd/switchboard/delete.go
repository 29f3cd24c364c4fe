package main

import (
	"context"
	"errors"
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
)

// deleteFlags are those of `switchboard delete`.
type deleteFlags struct {
	clientFlags
	files          []string
	customer       string
	wait, noneIsOK bool
	timeout        time.Duration
}

func newDeleteCommand() *cobra.Command {
	flags := &deleteFlags{}
	command := &cobra.Command{
		Use:               "delete (KIND NAME | -f FILE)",
		Short:             "Delete resources; waits until chains have ended",
		Example:           "  switchboard delete chain web --customer acme\n  switchboard delete -f examples/chains/web.yaml",
		Args:              usageArgs(cobra.MaximumNArgs(2)),
		ValidArgsFunction: completeTarget(&flags.clientFlags, &flags.customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			targets, err := flags.targets(arguments, command.InOrStdin())
			if err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			return deleteAll(command.Context(), command.OutOrStdout(), client, flags, targets)
		},
	}
	flags.add(command)
	command.Flags().StringArrayVarP(&flags.files, "filename", "f", nil, "delete the resources of a file or directory")
	command.Flags().StringVar(&flags.customer, "customer", "", "the resource's owner")
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	command.Flags().BoolVar(&flags.wait, "wait", true, "wait until chains have ended")
	command.Flags().BoolVar(&flags.noneIsOK, "ignore-not-found", false, "succeed where there is no such resource")
	durationFlag(command.Flags(), &flags.timeout, "timeout", 2*time.Minute, "how long to wait")
	return command
}

// targets lists what to delete, each before what it refers to.
func (f *deleteFlags) targets(arguments []string, input io.Reader) ([]target, error) {
	if len(f.files) == 0 {
		if len(arguments) == 0 {
			return nil, usageError{errors.New("delete: say what, with KIND NAME or -f FILE")}
		}
		t, err := parseTarget(arguments, f.customer)
		if err == nil && t.name == "" {
			err = usageError{errors.New("delete: name the resource")}
		}
		return []target{t}, err
	}
	if len(arguments) > 0 {
		return nil, usageError{errors.New("delete: give either KIND NAME or -f FILE")}
	}
	documents, mistakes, err := readResources(f.files, input)
	if err != nil {
		return nil, err
	}
	if len(mistakes) > 0 {
		return nil, &fileMistakes{mistakes}
	}
	var targets []target
	for _, d := range documents {
		key := resource.KeyOf(d.Message)
		if resource.Observed(key.Kind) {
			continue // goes with what it is observed of
		}
		targets = append(targets, target{kind: key.Kind, customer: string(key.Customer), name: key.Name})
	}
	order := func(t target) int { return -slices.Index(chain.AppliedKinds, t.kind) }
	slices.SortStableFunc(targets, func(a, b target) int { return order(a) - order(b) })
	return targets, nil
}

func deleteAll(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, flags *deleteFlags, targets []target) error {
	ctx, cancel := context.WithTimeout(ctx, flags.timeout)
	defer cancel()
	for _, t := range targets {
		_, err := client.Delete(ctx, connect.NewRequest(&apiv1.DeleteRequest{Kind: string(t.kind), Customer: t.customer, Name: t.name}))
		switch {
		case connect.CodeOf(err) == connect.CodeNotFound && flags.noneIsOK:
			continue
		case err != nil:
			return plain(err)
		}
		if t.kind == chain.KindChain && flags.wait {
			if err := awaitGone(ctx, client, t, flags.timeout); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "%s/%s deleted\n", t.kind, path(t.customer, t.name))
	}
	return nil
}

func awaitGone(ctx context.Context, client apiv1connect.SwitchboardServiceClient, t target, limit time.Duration) error {
	last, err := await(ctx, client, t, func(r *apiv1.Resource) bool { return r == nil })
	switch {
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("interrupted; %s %s is being deleted: %s", t.kind, path(t.customer, t.name), phaseText(last))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s is not gone after %v: %s", t.kind, path(t.customer, t.name), limit, phaseText(last))
	}
	return err
}
