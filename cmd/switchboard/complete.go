package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/lab"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// completion is how a shell asks what a word may become.
type completion = func(command *cobra.Command, words []string, begun string) ([]string, cobra.ShellCompDirective)

// completionPatience is how long a shell may wait for names; without an answer it has none to offer.
const completionPatience = 2 * time.Second

// beginning keeps those of a completion's words that begin as what is typed.
func beginning(all completion) completion {
	return func(command *cobra.Command, words []string, begun string) ([]string, cobra.ShellCompDirective) {
		offered, directive := all(command, words, begun)
		return slices.DeleteFunc(slices.Clone(offered), func(word string) bool { return !strings.HasPrefix(word, begun) }), directive
	}
}

// fixed completes by words that are always the same.
func fixed(words ...string) completion {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return words, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeTarget completes KIND NAME; more are kinds besides those of resources.
func completeTarget(flags *clientFlags, customer *string, more ...string) completion {
	return beginning(func(command *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		switch len(words) {
		case 0:
			return append(resource.KindWords(), more...), cobra.ShellCompDirectiveNoFileComp
		case 1:
			if kind, ok := resource.ParseKind(words[0]); ok {
				return names(command.Context(), flags, kind, *customer), cobra.ShellCompDirectiveNoFileComp
			}
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	})
}

// completeChain completes the only word of a command, a chain.
func completeChain(flags *clientFlags, customer *string) completion {
	return beginning(func(command *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(words) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command.Context(), flags, chain.KindChain, *customer), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeSiteOf completes the only word of a command, a site.
func completeSiteOf(flags *clientFlags) completion {
	return beginning(func(command *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(words) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(command.Context(), flags, chain.KindSite, ""), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeCustomer completes --customer.
func completeCustomer(flags *clientFlags) completion {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var all []string
		for _, kind := range []chain.Kind{chain.KindEdge, chain.KindChain} {
			for _, r := range listed(command.Context(), flags, kind, "") {
				if owner := r.GetMetadata().GetCustomer(); owner != "" {
					all = append(all, owner)
				}
			}
		}
		slices.Sort(all)
		return slices.Compact(all), cobra.ShellCompDirectiveNoFileComp
	}
}

// completeCondition completes what `wait` waits for, by the kind that was named.
func completeCondition(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
	conditions := []string{"deleted"}
	if len(words) > 0 {
		kind, _ := resource.ParseKind(strings.Split(words[0], "/")[0])
		switch kind {
		case chain.KindChain:
			for number, name := range apiv1.ChainPhase_name {
				if number != 0 {
					conditions = append(conditions, "phase="+strings.ToLower(strings.TrimPrefix(name, "CHAIN_PHASE_")))
				}
			}
		case chain.KindSite:
			conditions = append(conditions, "connected")
		case chain.KindEdge:
			conditions = append(conditions, "up")
		case chain.KindInstance, chain.KindDeployment:
			conditions = append(conditions, "healthy")
		}
	}
	slices.Sort(conditions)
	return conditions, cobra.ShellCompDirectiveNoFileComp
}

// completeMachine completes the machine of `lab exec`; what follows is a command.
func completeMachine(flags *labFlags) completion {
	return beginning(func(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		name, err := lab.FindName(flags.root, flags.name)
		if err != nil || len(words) > 0 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return lab.Machines(name), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeSite completes a site of a laboratory.
func completeSite(flags *labFlags) completion {
	return beginning(func(_ *cobra.Command, words []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(words) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		sites, _ := lab.Sites(flags.root, flags.name) // a shell shows no errors
		return sites, cobra.ShellCompDirectiveNoFileComp
	})
}

// names are those of a customer's resources, as the command line takes them; with their owner where none is given.
func names(ctx context.Context, flags *clientFlags, kind chain.Kind, customer string) []string {
	var all []string
	for _, r := range listed(ctx, flags, kind, customer) {
		owner := r.GetMetadata().GetCustomer()
		if customer != "" {
			owner = ""
		}
		all = append(all, path(owner, r.GetMetadata().GetName()))
	}
	return all
}

func listed(ctx context.Context, flags *clientFlags, kind chain.Kind, customer string) []*apiv1.Resource {
	client, err := flags.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	found, _ := list(ctx, client, target{kind: kind, customer: customer}) // a shell shows no errors
	return found
}

// completeFlag gives a flag its words; it panics where there is no such flag.
func completeFlag(command *cobra.Command, flag string, words completion) {
	if err := command.RegisterFlagCompletionFunc(flag, beginning(words)); err != nil {
		panic(err)
	}
}
