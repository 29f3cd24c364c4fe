package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/lab"
	"github.com/switchboard-project/switchboard/internal/resource"
)

// labFlags are those of every laboratory command.
type labFlags struct{ root, name string }

func newLabCommand() *cobra.Command {
	flags := &labFlags{}
	command := &cobra.Command{
		Use:   "lab",
		Short: "Run many sites on this machine, in network namespaces",
		Long:  "A laboratory is a wide area on one machine: sites, hosts and servers in network namespaces, and links between the\nsites with latency and rate. It needs root.",
	}
	command.PersistentFlags().StringVar(&flags.root, "state", lab.DefaultRoot, "directory that holds laboratories' state")
	command.PersistentFlags().StringVarP(&flags.name, "lab", "l", "", "name of the laboratory; not needed where there is one")
	command.AddCommand(
		newLabUpCommand(flags), newLabDownCommand(flags), newLabStatusCommand(flags), newLabForwardersCommand(flags),
		newLabExecCommand(flags), newLabPcapCommand(flags), newLabSuperviseCommand(flags), newLabServeHTTPCommand())
	return group(command)
}

func newProgress(out io.Writer) *lab.Progress {
	return lab.NewProgress(func(line string) { fmt.Fprintln(out, line) })
}

func newLabUpCommand(flags *labFlags) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:     "up -f FILE",
		Short:   "Bring up a laboratory, or what is missing of it, and apply its resources",
		Example: "  switchboard lab up -f examples/lab/four-sites.yaml",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			if file == "" {
				return usageError{errors.New("lab up: say which laboratory with -f FILE")}
			}
			text, err := lab.ReadText(file)
			if err != nil {
				return err
			}
			documents, err := checkLaboratory(file, text)
			if err != nil {
				return err
			}
			progress := newProgress(command.OutOrStdout())
			running, err := lab.Up(command.Context(), flags.root, file, progress, awaitHandover)
			if err != nil {
				return err
			}
			if err := applyLaboratory(command.Context(), running, documents, progress); err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "laboratory %s is up; API %s, logs %s/logs\n", running.Name, running.API, running.StateDirectory)
			return nil
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "file of the laboratory")
	return command
}

// checkLaboratory reads a laboratory's file and reports every mistake of its laboratory and its resources, before anything is built.
func checkLaboratory(file string, text []byte) ([]*resource.Document, error) {
	documents, mistakes := resource.ReadFile(file, lab.Resources(text))
	_, err := lab.Parse(file, text)
	var wrong *lab.FileError
	switch {
	case err != nil && (!errors.As(err, &wrong) || len(documents) == 0):
		return nil, err
	case err != nil:
		for _, p := range wrong.Problems {
			mistakes = append(mistakes, resource.Mistake{Source: file, Line: p.Line, Field: p.Field, Description: p.Description, Fix: p.Fix})
		}
	}
	mistakes = append(mistakes, resource.Duplicates(documents)...)
	f, world := &chain.Findings{}, chain.World{}
	for i, d := range documents {
		f.Resource = i
		if r, ok := resource.Parse(d.Message, f); ok {
			world[r.Key] = r
		}
	}
	for i, d := range documents {
		f.Resource = i
		world.CheckReferences(resource.KeyOf(d.Message), f)
	}
	for _, found := range f.All {
		m := mistakeIn(documents[found.Resource], found.Field, found.Description, found.Fix)
		if !resource.Covered(mistakes, m) {
			mistakes = append(mistakes, m)
		}
	}
	if len(mistakes) > 0 {
		sortByPlace(mistakes)
		return nil, &fileMistakes{mistakes}
	}
	return documents, nil
}

func newLabForwardersCommand(flags *labFlags) *cobra.Command {
	var remove string
	command := &cobra.Command{
		Use:   "forwarders SITE N",
		Short: "Bring a site to a number of forwarders, while connections go on",
		Long: "Adds forwarders to a site of a running laboratory, or removes some: one that goes hands over its edges, instances and\n" +
			"connections to another first. `lab up -f FILE` brings back the number that the file says.",
		Example:           "  switchboard lab forwarders edge-west 2\n  switchboard lab forwarders edge-west 1 --remove f1",
		ValidArgsFunction: completeSite(flags),
		Args:              usageArgs(cobra.ExactArgs(2)),
		RunE: func(command *cobra.Command, words []string) error {
			count, err := strconv.Atoi(words[1])
			if err != nil {
				return usageError{fmt.Errorf("lab forwarders: %q is no number of forwarders", words[1])}
			}
			progress := newProgress(command.OutOrStdout())
			running, err := lab.Scale(command.Context(), flags.root, flags.name, words[0], count, remove, progress, awaitHandover)
			if err != nil {
				return err
			}
			return awaitForwarders(command.Context(), running, words[0], func(f []*apiv1.ForwarderStatus) bool {
				return len(f) == count && !slices.ContainsFunc(f, func(f *apiv1.ForwarderStatus) bool { return !f.Alive })
			})
		},
	}
	command.Flags().StringVar(&remove, "remove", "", "the forwarder that goes first (default: the last)")
	return command
}

// handoverLimit is how long a forwarder may take to hand over what it has.
const handoverLimit = 2 * time.Minute

// awaitHandover waits until forwarders of a site are listed no more.
func awaitHandover(ctx context.Context, running *lab.Running, site string, names []string) error {
	return awaitForwarders(ctx, running, site, func(listed []*apiv1.ForwarderStatus) bool {
		return !slices.ContainsFunc(listed, func(f *apiv1.ForwarderStatus) bool { return slices.Contains(names, f.Name) })
	})
}

// awaitForwarders waits until a site's forwarders are as they should be.
func awaitForwarders(ctx context.Context, running *lab.Running, site string, met func([]*apiv1.ForwarderStatus) bool) error {
	client, err := (&clientFlags{server: running.API, tokenFile: running.TokenFile}).client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, handoverLimit)
	defer cancel()
	_, err = await(ctx, client, target{kind: chain.KindSite, name: site}, func(r *apiv1.Resource) bool {
		return met(r.GetSite().GetStatus().GetForwarders())
	})
	switch {
	case errors.Is(err, context.Canceled):
		return lab.ErrInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the forwarders of site %s are not as wanted after %v; see `describe site %s` and %s/logs", site, handoverLimit, site, running.StateDirectory)
	}
	return err
}

// settling is how long what a laboratory's file describes may take to be there.
const settling = 60 * time.Second

// applyLaboratory applies a laboratory's resources and waits until sites and functions are there.
func applyLaboratory(ctx context.Context, running *lab.Running, documents []*resource.Document, progress *lab.Progress) error {
	client, err := (&clientFlags{server: running.API, tokenFile: running.TokenFile}).client()
	if err != nil {
		return err
	}
	if err := apply(ctx, io.Discard, client, documents, false); ctx.Err() != nil {
		return lab.ErrInterrupted
	} else if err != nil {
		return err
	}
	progress.Step("%d resources applied", len(documents))
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	conditions := map[chain.Kind]string{chain.KindSite: "connected", chain.KindDeployment: "healthy", chain.KindEdge: "up"}
	for _, document := range documents {
		key := resource.KeyOf(document.Message)
		condition, waits := conditions[key.Kind]
		if !waits {
			continue
		}
		met, err := parseCondition(key.Kind, condition)
		if err != nil {
			return err
		}
		if connected := met; key.Kind == chain.KindSite {
			met = func(r *apiv1.Resource) bool { return connected(r) && forwards(r) }
		}
		_, err = await(ctx, client, target{kind: key.Kind, customer: string(key.Customer), name: key.Name}, met)
		switch {
		case errors.Is(err, context.Canceled):
			return lab.ErrInterrupted
		case errors.Is(err, context.DeadlineExceeded):
			return fmt.Errorf("%s is not %s after %v; see %s/logs", key, condition, settling, running.StateDirectory)
		case err != nil:
			return fmt.Errorf("%s is not %s: %w; see %s/logs", key, condition, err, running.StateDirectory)
		}
	}
	progress.Step("sites connected, forwarders running, functions healthy, edges up")
	return nil
}

// forwards reports whether a site has forwarders and all of them run.
func forwards(site *apiv1.Resource) bool {
	forwarders := site.GetSite().GetStatus().GetForwarders()
	return len(forwarders) > 0 && !slices.ContainsFunc(forwarders, func(f *apiv1.ForwarderStatus) bool { return !f.Alive })
}

func newLabDownCommand(flags *labFlags) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "down",
		Short: "Remove every trace of a laboratory",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			name := flags.name
			if file != "" {
				laboratory, err := lab.ReadFile(file)
				if err != nil {
					return err
				}
				name = laboratory.Name
			}
			if name == "" {
				found, err := lab.FindName(flags.root, "")
				if err != nil {
					return err
				}
				name = found
			}
			return lab.Down(flags.root, name, newProgress(command.OutOrStdout()))
		},
	}
	command.Flags().StringVarP(&file, "filename", "f", "", "file of the laboratory")
	return command
}

func newLabStatusCommand(flags *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show processes, machines, and links as configured and as measured",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			status, err := lab.Inspect(command.Context(), flags.root, flags.name)
			if err != nil {
				return err
			}
			return status.Write(command.OutOrStdout())
		},
	}
}

func newLabExecCommand(flags *labFlags) *cobra.Command {
	command := &cobra.Command{
		Use:               "exec MACHINE -- COMMAND [ARGUMENT...]",
		Short:             "Run a program on a host, a server, a site or a VNF instance",
		Example:           "  switchboard lab exec acme-host -- curl -s http://198.51.100.80/",
		ValidArgsFunction: completeMachine(flags),
		RunE: func(command *cobra.Command, words []string) error {
			if len(words) > 1 && words[1] == "--" {
				words = slices.Delete(words, 1, 2)
			}
			if len(words) < 2 {
				return usageError{errors.New("lab exec: name a machine and a command: lab exec MACHINE -- COMMAND")}
			}
			return lab.Exec(flags.root, flags.name, words[0], words[1:])
		},
	}
	command.Flags().SetInterspersed(false)
	return command
}

func newLabPcapCommand(flags *labFlags) *cobra.Command {
	var limit int
	command := &cobra.Command{
		Use:               "pcap SITE",
		Short:             "Capture a site's wide-area side, in pcap format, to standard output",
		Example:           "  switchboard lab pcap dc | tshark -r -",
		ValidArgsFunction: completeSite(flags),
		Args:              usageArgs(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, words []string) error {
			return lab.Capture(command.Context(), flags.root, flags.name, words[0], limit, command.OutOrStdout())
		},
	}
	command.Flags().IntVarP(&limit, "count", "c", 0, "stop after so many packets (0: at interrupt)")
	return command
}

func newLabSuperviseCommand(flags *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:    "supervise",
		Short:  "Keep a laboratory's processes running (started by lab up)",
		Hidden: true,
		Args:   usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
			return lab.Supervise(command.Context(), flags.root, flags.name, logger)
		},
	}
}

func newLabServeHTTPCommand() *cobra.Command {
	var address string
	command := &cobra.Command{
		Use:   "serve-http",
		Short: "Serve the laboratory's web pages: / and /bytes/N",
		Args:  usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			return lab.ServeHTTP(command.Context(), address)
		},
	}
	command.Flags().StringVar(&address, "listen", ":80", "address and port")
	return command
}
