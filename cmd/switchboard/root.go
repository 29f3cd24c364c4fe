package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// newRootCommand returns the command line. Each command has a file of its own.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "switchboard",
		Short: "Steer traffic through chains of network functions over many sites",
		Long: "Switchboard steers customers' traffic through ordered chains of network functions spread over many sites.\n" +
			"Begin with `switchboard lab up -f examples/lab/four-sites.yaml`.",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newVersionCommand(), newLabCommand())
	root.AddCommand(newSiteCommand(), newVnfCommand(), newGlobalCommand(), newAuthorityCommand(), newEnrolCommand())
	root.AddCommand(newApplyCommand(), newGetCommand(), newDescribeCommand(), newDeleteCommand(), newWaitCommand(), newEventsCommand(),
		newTraceCommand(), newTopCommand())
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	return group(root)
}

// group makes a command that only holds others refuse a word that names none of them; without any it shows its help.
func group(command *cobra.Command) *cobra.Command {
	command.SuggestionsMinimumDistance = 2
	command.Args = func(command *cobra.Command, words []string) error {
		if len(words) == 0 {
			return nil
		}
		remedy := "see " + command.CommandPath() + " --help"
		if near := command.SuggestionsFor(words[0]); len(near) > 0 {
			remedy = "did you mean " + strings.Join(near, " or ") + "?"
		}
		name := strings.TrimPrefix(command.CommandPath()+" "+words[0], command.Root().Name()+" ")
		return usageError{fmt.Errorf("there is no command %q; %s", name, remedy)}
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	return command
}

// usageError is a mistake in how a command was called; it exits with 2.
type usageError struct{ error }

// exitCode is 2 for wrong usage and 1 for everything else.
func exitCode(err error) int {
	var usage usageError
	if errors.As(err, &usage) {
		return 2
	}
	return 1
}
