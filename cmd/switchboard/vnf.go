package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

func newVnfCommand() *cobra.Command {
	var configFile, readyFile, level string
	command := &cobra.Command{
		Use:   "vnf NAME --config FILE",
		Short: "Run the controller of a VNF service",
		Long: "Runs the controller that grants chains a share of the VNF's capacity at each site. It uses the message bus of the\n" +
			"site that the VNF's catalogue entry names as controllerSite.",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			config, err := vnf.LoadConfig(configFile)
			if err != nil {
				return usageError{err}
			}
			log, err := newLogger(level)
			if err != nil {
				return usageError{err}
			}
			return runVnf(command.Context(), arguments[0], config, log, readyFile)
		},
	}
	command.Flags().StringVar(&configFile, "config", "", "the controller's configuration, a YAML file")
	command.Flags().StringVar(&readyFile, "ready-file", "", "write this file when the controller is ready")
	command.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	_ = command.MarkFlagRequired("config")
	return command
}

// runVnf runs a controller until ctx ends.
func runVnf(ctx context.Context, name string, config *vnf.Config, log *slog.Logger, readyFile string) error {
	connection, err := bus.Connect(ctx, bus.ConnectConfig{Agent: "vnf-" + name, URL: config.BusURL, CredentialsFile: config.Credentials, Logger: log})
	if err != nil {
		return err
	}
	defer connection.Close()
	return vnf.NewController(connection, name, config.GlobalSite, log).Run(ctx, func() { announceReady(log, readyFile) })
}
