package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
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
		newTraceCommand(), newCaptureCommand(), newTopCommand())
	root.SetFlagErrorFunc(wrongFlag)
	group(root)
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, command := range root.Commands() {
		switch command.Name() {
		case "completion":
			group(command).SuggestionsMinimumDistance = 1 // shells' names are near each other
		case "help":
			command.Run, command.RunE = nil, help
		}
	}
	checkCalls(root)
	return root
}

// checkCalls makes what is wrong or missing in a call of a command or of those below it a mistake of usage.
func checkCalls(command *cobra.Command) {
	words := command.Args
	command.Args = usageArgs(func(command *cobra.Command, arguments []string) error {
		if words != nil {
			if err := words(command, arguments); err != nil {
				return err
			}
		}
		return command.ValidateRequiredFlags()
	})
	for _, below := range command.Commands() {
		checkCalls(below)
	}
}

// wrongFlag is the mistake of a flag that a command does not have, or of a value that it does not take. It says which there are.
func wrongFlag(command *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var value *pflag.InvalidValueError
	var number *strconv.NumError
	if errors.As(err, &value) && errors.As(err, &number) {
		f := value.GetFlag()
		return usageError{fmt.Errorf("--%s %q: write %s; see %s --help", f.Name, value.GetValue(), valuesOf(f), command.CommandPath())}
	}
	if !errors.As(err, &unknown) {
		return usageError{fmt.Errorf("%w; see %s --help", err, command.CommandPath())}
	}
	var names []string
	command.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, "--"+f.Name)
		}
	})
	return usageError{fmt.Errorf("%w; %s has %s", err, command.CommandPath(), strings.Join(names, ", "))}
}

// valuesOf says what a flag of numbers, or of yes and no, takes.
func valuesOf(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "uint32":
		return fmt.Sprintf("a whole number from 0 to %d", uint32(math.MaxUint32))
	case "uint64":
		return "a whole number from 0 on"
	case "bool":
		return "true or false"
	case "float64":
		return "a number"
	default:
		return "a whole number"
	}
}

// help shows the help of the command that the words name.
func help(command *cobra.Command, words []string) error {
	about, rest, err := command.Root().Find(words)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return noCommand(about, rest[0])
	}
	about.InitDefaultHelpFlag() // so that it is shown
	return about.Help()
}

// group makes a command that only holds others refuse a word that names none of them; without any it shows its help.
func group(command *cobra.Command) *cobra.Command {
	command.SuggestionsMinimumDistance = 2
	command.Args = func(command *cobra.Command, words []string) error {
		if len(words) == 0 {
			return nil
		}
		return noCommand(command, words[0])
	}
	command.RunE = func(command *cobra.Command, _ []string) error { return command.Help() }
	return command
}

// noCommand is the mistake of a word that names no command below another. It says which one is near, else which there are.
func noCommand(above *cobra.Command, word string) error {
	remedy := "see " + above.CommandPath() + " --help"
	var names []string
	for _, one := range above.Commands() {
		if one.IsAvailableCommand() || one.Name() == "help" {
			names = append(names, one.Name())
		}
	}
	if len(names) > 0 {
		remedy = "use one of " + strings.Join(names, ", ")
	}
	if near := above.SuggestionsFor(word); len(near) > 0 {
		remedy = "did you mean " + strings.Join(near, " or ") + "?"
	}
	name := strings.TrimPrefix(above.CommandPath()+" "+word, above.Root().Name()+" ")
	return usageError{fmt.Errorf("there is no command %q; %s", name, remedy)}
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
