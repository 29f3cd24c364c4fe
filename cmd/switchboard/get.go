package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/resource"
	"github.com/switchboard-project/switchboard/internal/show"
)

// target is what KIND [NAME] and --customer mean.
type target struct {
	kind           chain.Kind
	customer, name string
	// chain is the one whose routes are meant, "" all.
	chain string
}

// parseTarget reads KIND, KIND NAME or KIND/NAME; a name may be CUSTOMER/NAME.
func parseTarget(arguments []string, customer string) (target, error) {
	words := arguments
	if len(words) == 1 {
		if kind, name, both := strings.Cut(words[0], "/"); both {
			words = []string{kind, name}
		}
	}
	kind, ok := resource.ParseKind(words[0])
	if !ok {
		return target{}, usageError{fmt.Errorf("there is no kind %q; use one of %s", words[0], strings.Join(resource.KindWords(), ", "))}
	}
	t := target{kind: kind, customer: customer}
	if len(words) > 1 {
		t.name = words[1]
		if owner, name, both := strings.Cut(words[1], "/"); both {
			if customer != "" && customer != owner {
				return target{}, usageError{fmt.Errorf("%s is not of customer %s", words[1], customer)}
			}
			t.customer, t.name = owner, name
		}
	}
	return t, nil
}

// ofChain selects the routes of a chain, which may be CUSTOMER/NAME.
func (t *target) ofChain(name string) error {
	if t.kind != chain.KindRoute {
		return usageError{fmt.Errorf("--chain %s: selects routes, not %s", name, t.kind)}
	}
	of, err := parseTarget([]string{"chain", name}, t.customer)
	t.customer, t.chain = of.customer, of.name
	return err
}

// missing is the error that there is no such resource.
func (t target) missing() error {
	hint := ""
	if t.kind == chain.KindRoute {
		hint = "; `switchboard get routes --chain CHAIN` shows a chain's"
	}
	return fmt.Errorf("there is no %s %s%s", t.kind, path(t.customer, t.name), hint)
}

// getFlags are those of `switchboard get`.
type getFlags struct {
	clientFlags
	output, customer, chain string
	watch                   bool
}

// getForms are what resources can be shown as.
var getForms = []string{"table", "wide", "json", "yaml", "name"}

// eventWords are those after which `get` does what `events` does.
var eventWords = []string{"events", "event"}

// events is `get events [KIND [NAME]]`.
func (flags *getFlags) events(ctx context.Context, out io.Writer, arguments []string) error {
	if flags.watch || flags.chain != "" {
		return usageError{errors.New("get events: takes no --watch and no --chain; name the chain with get events chain NAME")}
	}
	events := &eventFlags{clientFlags: flags.clientFlags, customer: flags.customer, output: flags.output, limit: defaultEvents}
	return events.show(ctx, out, arguments[1:])
}

func newGetCommand() *cobra.Command {
	flags := &getFlags{}
	command := &cobra.Command{
		Use:   "get KIND [NAME]",
		Short: "Show resources: sites, links, networks, customers, vnfs, deployments, instances, edges, chains, routes, moves, all or events",
		Example: "  switchboard get chains -o wide\n  switchboard get chain web --customer acme -o yaml\n" +
			"  switchboard get routes --chain acme/web\n  switchboard get instances --watch",
		Args:              usageArgs(cobra.RangeArgs(1, 3)),
		ValidArgsFunction: completeTarget(&flags.clientFlags, &flags.customer, "all", "events"),
		RunE: func(command *cobra.Command, arguments []string) error {
			if slices.Contains(eventWords, strings.ToLower(arguments[0])) {
				return flags.events(command.Context(), command.OutOrStdout(), arguments)
			}
			if len(arguments) > 2 {
				return usageError{fmt.Errorf("get: %q is one word too many; see switchboard get --help", arguments[2])}
			}
			if err := checkOutput(flags.output, getForms...); err != nil {
				return err
			}
			client, err := flags.client()
			if err != nil {
				return err
			}
			return get(command.Context(), command.OutOrStdout(), command.ErrOrStderr(), client, flags, arguments)
		},
	}
	flags.add(command)
	addOutput(command, &flags.output, getForms...)
	command.Flags().StringVar(&flags.customer, "customer", "", "show this customer's only")
	command.Flags().StringVar(&flags.chain, "chain", "", "of routes: show this chain's only")
	command.Flags().BoolVarP(&flags.watch, "watch", "w", false, "go on showing what changes")
	completeFlag(command, "customer", completeCustomer(&flags.clientFlags))
	completeFlag(command, "chain", func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return completeChain(&flags.clientFlags, &flags.customer)(command, nil, "")
	})
	return command
}

// usageArgs makes a wrong number of arguments a mistake of usage.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(command *cobra.Command, arguments []string) error {
		err := check(command, arguments)
		var known usageError
		switch {
		case err != nil && !errors.As(err, &known):
			return usageError{fmt.Errorf("%s: %w; write %s", command.CommandPath(), err, command.UseLine())}
		}
		return err
	}
}

func get(ctx context.Context, out, notes io.Writer, client apiv1connect.SwitchboardServiceClient, flags *getFlags, arguments []string) error {
	if arguments[0] == "all" {
		if len(arguments) > 1 || flags.watch {
			return usageError{errors.New("get all: takes no name and no --watch")}
		}
		return getAll(ctx, out, client, flags)
	}
	t, err := parseTarget(arguments, flags.customer)
	if err == nil && flags.chain != "" {
		err = t.ofChain(flags.chain)
	}
	if err != nil {
		return err
	}
	if flags.watch {
		return watch(ctx, out, client, flags, t)
	}
	found, err := list(ctx, client, t)
	if err != nil {
		return err
	}
	if len(found) == 0 && t.name != "" {
		return t.missing()
	}
	if len(found) == 0 && (flags.output == "table" || flags.output == "wide") {
		fmt.Fprintf(notes, "no %s\n", arguments[0])
		return nil
	}
	return write(out, flags.output, t.kind, found, t.name != "")
}

func list(ctx context.Context, client apiv1connect.SwitchboardServiceClient, t target) ([]*apiv1.Resource, error) {
	answer, err := client.List(ctx, connect.NewRequest(&apiv1.ListRequest{Kind: string(t.kind), Customer: t.customer, Name: t.name, Chain: t.chain}))
	if err != nil {
		return nil, plain(err)
	}
	return answer.Msg.Resources, nil
}

func write(out io.Writer, form string, kind chain.Kind, found []*apiv1.Resource, single bool) error {
	var text []byte
	var err error
	switch form {
	case "yaml":
		text, err = resource.YAML(found)
	case "json":
		text, err = resource.JSON(found, single)
	case "name":
		for _, r := range found {
			text = fmt.Appendf(text, "%s/%s\n", resource.KindOf(r), path(r.Metadata.GetCustomer(), r.Metadata.GetName()))
		}
	default:
		return show.Table(out, kind, found, form == "wide", time.Now())
	}
	if err != nil {
		return err
	}
	_, err = out.Write(text)
	return err
}

// getAll shows every kind that has resources.
func getAll(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, flags *getFlags) error {
	var everything []*apiv1.Resource
	first := true
	for _, word := range resource.KindWords() {
		kind, _ := resource.ParseKind(word)
		found, err := list(ctx, client, target{kind: kind, customer: flags.customer})
		if err != nil {
			return err
		}
		if len(found) == 0 {
			continue
		}
		if flags.output != "table" && flags.output != "wide" {
			everything = append(everything, found...)
			continue
		}
		if !first {
			fmt.Fprintln(out)
		}
		first = false
		fmt.Fprintln(out, strings.ToUpper(word))
		if err := write(out, flags.output, kind, found, false); err != nil {
			return err
		}
	}
	if len(everything) > 0 {
		return write(out, flags.output, "", everything, false)
	}
	return nil
}

// watch shows resources, and each again when it changes.
func watch(ctx context.Context, out io.Writer, client apiv1connect.SwitchboardServiceClient, flags *getFlags, t target) error {
	stream, err := client.Watch(ctx, connect.NewRequest(&apiv1.WatchRequest{Kind: string(t.kind), Customer: t.customer, Name: t.name, Chain: t.chain}))
	if err != nil {
		return plain(err)
	}
	defer stream.Close()
	var present []*apiv1.Resource
	synchronised := false
	for stream.Receive() {
		change := stream.Msg()
		switch change.Change {
		case apiv1.WatchChange_WATCH_CHANGE_SYNCHRONISED:
			synchronised = true
			if err := write(out, flags.output, t.kind, present, false); err != nil {
				return err
			}
		case apiv1.WatchChange_WATCH_CHANGE_PRESENT:
			if !synchronised {
				present = append(present, change.Resource)
			} else if err := writeChange(out, flags.output, t.kind, change.Resource); err != nil {
				return err
			}
		case apiv1.WatchChange_WATCH_CHANGE_DELETED:
			fmt.Fprintf(out, "%s/%s deleted\n", t.kind, path(change.Resource.Metadata.GetCustomer(), change.Resource.Metadata.GetName()))
		}
	}
	if err := stream.Err(); err != nil && ctx.Err() == nil {
		return plain(err)
	}
	return nil
}

// writeChange writes one resource; as a table, without the titles.
func writeChange(out io.Writer, form string, kind chain.Kind, r *apiv1.Resource) error {
	if form != "table" && form != "wide" {
		return write(out, form, kind, []*apiv1.Resource{r}, true)
	}
	var text strings.Builder
	if err := write(&text, form, kind, []*apiv1.Resource{r}, true); err != nil {
		return err
	}
	_, row, _ := strings.Cut(text.String(), "\n")
	_, err := io.WriteString(out, row)
	return err
}
