package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchboard-project/switchboard/internal/api"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/global"
)

// globalFlags are those of `switchboard global`.
type globalFlags struct {
	credentials, tokenFile, readyFile, level                string
	listen                                                  []string
	patience, drainLimit, deleteDrainLimit, deleteIdleLimit time.Duration
	keepEstimate, newSelectionSeed                          bool
	engineering                                             engineeringFlags
	moves                                                   global.MovePolicy
	outages                                                 global.OutagePolicy
}

func newGlobalCommand() *cobra.Command {
	flags := &globalFlags{}
	command := &cobra.Command{
		Use:   "global --credentials FILE --listen WHERE",
		Short: "Run the Global Switchboard: plans chains, and serves the API",
		Long: "Runs the controller of the whole platform at one site. It keeps what was applied in that site's message bus; it\n" +
			"can be stopped, killed and started at any moment: transactions are finished or aborted when it starts.\n\n" +
			"WHERE is unix:PATH, tcp:ADDRESS:PORT, or fd:N for a listening socket handed over by a supervisor.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			log, err := newLogger(flags.level)
			if err != nil {
				return usageError{err}
			}
			slog.SetDefault(log)
			return runGlobal(command.Context(), flags, log)
		},
	}
	f := command.Flags()
	f.StringVar(&flags.credentials, "credentials", "", "the site's credentials for a controller, <store>/credentials/controller.default.json")
	f.StringArrayVar(&flags.listen, "listen", nil, "where the API is served; may be given several times")
	flags.engineering.define(f)
	f.StringVar(&flags.tokenFile, "token-file", defaultTokenFile(), "the API's token; made at the first start")
	durationFlag(f, &flags.patience, "patience", 0, "how long a refused plan is tried again before the chain is rejected (default 2s)")
	durationFlag(f, &flags.drainLimit, "drain-limit", 0, "how long a replaced version keeps its connections (default 1h)")
	durationFlag(f, &flags.deleteDrainLimit, "delete-drain-limit", 0, "how long a deleted chain keeps its connections at most (default 30s)")
	durationFlag(f, &flags.deleteIdleLimit, "delete-idle-limit", 0, "how long a deleted chain keeps connections that are silent (default 3s)")
	durationFlag(f, &flags.outages.Instances, "instances-down-limit", 0, "how long all instances of a deployment are dead before chains are routed around it (default 1s)")
	durationFlag(f, &flags.outages.Forwarders, "forwarder-away-limit", 0, "how long a site's forwarders are away before chains are routed around it (default 5s)")
	durationFlag(f, &flags.outages.Site, "site-away-limit", 0, "how long a site cannot be reached before chains are routed around it (default 30s)")
	durationFlag(f, &flags.outages.Recovered, "recovered-after", 0, "how long what was away must work before it gets routes again (default 10s)")
	f.BoolVar(&flags.moves.Apply, "apply-moves", false, "carry out the plan of moves, one chain at a time; otherwise 'switchboard get moves' shows it")
	f.Float64Var(&flags.moves.Least, "least-gain", 0.05, "moves that save less than this share of what a chain costs are left out")
	durationFlag(f, &flags.moves.Interval, "moves-interval", 0, "how often the optimum is looked for while things change (default 30s)")
	f.BoolVar(&flags.keepEstimate, "keep-estimate", false, "plan for the customer's estimate, never for measured traffic")
	f.BoolVar(&flags.newSelectionSeed, "new-selection-seed", false,
		"replace the secret by which forwarders choose instances; established connections stay where they are; forwarders of several workers hand packets over among them until each is started again")
	f.StringVar(&flags.readyFile, "ready-file", "", "write this file when the API is served")
	f.StringVar(&flags.level, "log-level", "info", "debug, info, warn or error")
	_ = command.MarkFlagRequired("credentials")
	_ = command.MarkFlagRequired("listen")
	return command
}

func runGlobal(ctx context.Context, flags *globalFlags, log *slog.Logger) error {
	engineering, err := flags.engineering.config(flags.credentials)
	if err != nil {
		return usageError{err}
	}
	token, err := api.Token(flags.tokenFile)
	if err != nil {
		return err
	}
	var listeners []net.Listener
	for _, where := range flags.listen {
		l, err := api.Listen(where)
		if err != nil {
			return err
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	connection, err := connectWhenThere(ctx, flags.credentials, log)
	if err != nil {
		return err
	}
	defer connection.Close()
	g, err := global.Open(ctx, global.Config{Connection: connection, Logger: log, Patience: flags.patience,
		DrainLimit: flags.drainLimit, DeleteDrainLimit: flags.deleteDrainLimit, DeleteIdleLimit: flags.deleteIdleLimit,
		Measure:          global.MeasurePolicy{Off: flags.keepEstimate},
		NewSelectionSeed: flags.newSelectionSeed, Engineering: engineering, Outages: flags.outages, Moves: flags.moves})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 2)
	go func() {
		ended <- g.Run(ctx, func() {
			announceReady(log, flags.readyFile)
			ended <- api.Serve(ctx, api.Handler(g, token), listeners...)
		})
	}()
	err = <-ended
	cancel()
	return errors.Join(err, <-ended)
}

// connectWhenThere waits for the site process to write the credentials, then connects.
func connectWhenThere(ctx context.Context, credentials string, log *slog.Logger) (*bus.Connection, error) {
	for said := false; ; said = true {
		_, err := os.Stat(credentials)
		if err == nil {
			return bus.Connect(ctx, bus.ConnectConfig{Agent: "global-switchboard", CredentialsFile: credentials, Logger: log})
		}
		if !os.IsNotExist(err) {
			return nil, err
		}
		if !said {
			log.Info("waiting for the site to write the credentials", "file", credentials)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("credentials %s: %w", credentials, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
