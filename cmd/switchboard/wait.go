package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
)

func newWaitCommand() *cobra.Command {
	flags := &clientFlags{}
	var condition, customer string
	var timeout time.Duration
	command := &cobra.Command{
		Use:   "wait KIND NAME --for CONDITION",
		Short: "Wait until a resource is in a state",
		Long: "CONDITION is phase=PHASE for chains, connected for sites, up for edges, healthy for instances and deployments, or\n" +
			"deleted. A chain that is rejected ends the wait for phase=active at once.",
		Example:           "  switchboard wait chain web --customer acme --for phase=active --timeout 60s",
		Args:              usageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: completeTarget(flags, &customer),
		RunE: func(command *cobra.Command, arguments []string) error {
			t, err := parseTarget(arguments, customer)
			if err == nil && t.name == "" {
				err = usageError{errors.New("wait: name the resource")}
			}
			if err != nil {
				return err
			}
			if condition == "" {
				return usageError{errors.New("wait: say what for with --for CONDITION; see switchboard wait --help")}
			}
			met, err := parseCondition(t.kind, condition)
			if err != nil {
				return usageError{err}
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(command.Context(), timeout)
			defer cancel()
			begun := time.Now()
			last, err := await(ctx, client, t, func(r *apiv1.Resource) bool { return met(r) || hopeless(condition, r) })
			switch {
			case errors.Is(err, context.DeadlineExceeded):
				return fmt.Errorf("%s %s: %s is not met after %v: %s", t.kind, path(t.customer, t.name), condition, timeout, phaseText(last))
			case errors.Is(err, context.Canceled):
				return fmt.Errorf("%s %s: interrupted after %v, %s is not met: %s", t.kind, path(t.customer, t.name),
					time.Since(begun).Round(100*time.Millisecond), condition, phaseText(last))
			case err != nil:
				return err
			case !met(last):
				return fmt.Errorf("%s %s: %s", t.kind, path(t.customer, t.name), phaseText(last))
			}
			fmt.Fprintf(command.OutOrStdout(), "%s/%s condition met\n", t.kind, path(t.customer, t.name))
			return nil
		},
	}
	flags.add(command)
	command.Flags().StringVar(&condition, "for", "", "what to wait for")
	command.Flags().StringVar(&customer, "customer", "", "the resource's owner")
	durationFlag(command.Flags(), &timeout, "timeout", 30*time.Second, "how long to wait")
	completeFlag(command, "for", completeCondition)
	completeFlag(command, "customer", completeCustomer(flags))
	return command
}

// parseCondition reads a condition for a kind. A resource that does not exist is nil.
func parseCondition(kind chain.Kind, text string) (func(*apiv1.Resource) bool, error) {
	lower := strings.ToLower(text)
	switch {
	case lower == "deleted" || lower == "delete":
		return func(r *apiv1.Resource) bool { return r == nil }, nil
	case kind == chain.KindChain && strings.HasPrefix(lower, "phase="):
		phase := strings.TrimPrefix(lower, "phase=")
		if _, known := apiv1.ChainPhase_value["CHAIN_PHASE_"+strings.ToUpper(phase)]; !known || phase == "unspecified" {
			return nil, fmt.Errorf("--for %s: there is no phase %q; use requested, planning, preparing, active, updating, deleting, rejected or failed", text, phase)
		}
		return func(r *apiv1.Resource) bool {
			status := r.GetChain().GetStatus()
			return r != nil && resource.Word(status.GetPhase()) == phase &&
				(phase != "active" || status.GetObservedGeneration() == r.Metadata.GetGeneration())
		}, nil
	case kind == chain.KindSite && lower == "connected":
		return func(r *apiv1.Resource) bool { return r.GetSite().GetStatus().GetConnected() }, nil
	case kind == chain.KindEdge && lower == "up":
		return func(r *apiv1.Resource) bool { return r.GetEdge().GetStatus().GetUp() }, nil
	case kind == chain.KindInstance && lower == "healthy":
		return func(r *apiv1.Resource) bool {
			return r.GetVnfInstance().GetState() == apiv1.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY
		}, nil
	case kind == chain.KindDeployment && lower == "healthy":
		return func(r *apiv1.Resource) bool {
			d := r.GetVnfDeployment()
			return r != nil && d.GetStatus().GetHealthyInstances() >= d.GetSpec().GetInstances()
		}, nil
	}
	return nil, fmt.Errorf("--for %q: a %s has no such condition; see switchboard wait --help", text, resource.FileKind(kind))
}

// hopeless reports that a chain will not become active by waiting.
func hopeless(condition string, r *apiv1.Resource) bool {
	status := r.GetChain().GetStatus()
	return strings.EqualFold(condition, "phase=active") && status.GetPhase() == apiv1.ChainPhase_CHAIN_PHASE_REJECTED &&
		status.GetObservedGeneration() == r.GetMetadata().GetGeneration()
}

// awaitRetry is how long to wait for a server that went away.
const awaitRetry = 200 * time.Millisecond

// await watches a resource until it is as wanted; nil is one that does not exist. It returns the last state seen. A
// server that restarts is waited for. It ends with the error of ctx when that ends first.
func await(ctx context.Context, client apiv1connect.SwitchboardServiceClient, t target, met func(*apiv1.Resource) bool) (*apiv1.Resource, error) {
	connected := false
	for {
		last, done, err := awaitOnce(ctx, client, t, met)
		connected = connected || done || err == nil
		var silent *noAnswer
		switch code := connect.CodeOf(err); {
		case done:
			return last, nil
		case !connected && errors.As(err, &silent):
			return last, err
		case ctx.Err() != nil:
			return last, ctx.Err()
		case code == connect.CodeDeadlineExceeded:
			return last, context.DeadlineExceeded
		case err != nil && (!connected || code != connect.CodeUnavailable && code != connect.CodeCanceled && code != connect.CodeUnknown):
			return last, plain(err)
		}
		select {
		case <-ctx.Done():
			return last, ctx.Err()
		case <-time.After(awaitRetry):
		}
	}
}

// awaitOnce is await on one connection.
func awaitOnce(ctx context.Context, client apiv1connect.SwitchboardServiceClient, t target, met func(*apiv1.Resource) bool) (last *apiv1.Resource, done bool, err error) {
	stream, err := client.Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{Kind: string(t.kind), Customer: t.customer, Name: t.name}))
	if err != nil {
		return nil, false, err
	}
	defer stream.Close()
	synchronised := false
	for stream.Receive() {
		switch change := stream.Msg(); change.Change {
		case apiv1.WatchChange_WATCH_CHANGE_PRESENT:
			last = change.Resource
		case apiv1.WatchChange_WATCH_CHANGE_DELETED:
			last = nil
		case apiv1.WatchChange_WATCH_CHANGE_SYNCHRONISED:
			synchronised = true
		}
		if synchronised && met(last) {
			return last, true, nil
		}
	}
	return last, false, stream.Err()
}

// phaseText says how a resource stands.
func phaseText(r *apiv1.Resource) string {
	if r == nil {
		return "it does not exist"
	}
	c := r.GetChain()
	if c == nil {
		return "it exists"
	}
	text := "phase " + resource.Word(c.GetStatus().GetPhase())
	if reason := c.GetStatus().GetReason(); reason != "" {
		text += ": " + reason
		if from := c.GetStatus().GetReasonFrom(); from != "" {
			text += " (" + from + ")"
		}
	}
	return text
}
