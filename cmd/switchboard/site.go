package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/site"
)

func newSiteCommand() *cobra.Command {
	var configFile, readyFile, level string
	command := &cobra.Command{
		Use:   "site --config FILE",
		Short: "Run a site: message bus, Local Switchboard, edge controller and VNF agents",
		Long: "Runs everything of the control plane that a site needs, in one process. Forwarders and VNF instances go on\n" +
			"without it: it can be stopped and started at any moment. SIGHUP makes it read forwarders and edgeInterfaces of the\n" +
			"configuration again.",
		Args: usageArgs(cobra.NoArgs),
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := site.LoadConfig(configFile)
			if err != nil {
				return usageError{err}
			}
			log, err := newLogger(level)
			if err != nil {
				return usageError{err}
			}
			return runSite(command.Context(), configFile, config, log, readyFile)
		},
	}
	command.Flags().StringVar(&configFile, "config", "", "the site's configuration, a YAML file")
	command.Flags().StringVar(&readyFile, "ready-file", "", "write this file when the site is ready")
	command.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	_ = command.MarkFlagRequired("config")
	return command
}

func newLogger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level: %q; use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

// runSite runs a site until ctx ends.
func runSite(ctx context.Context, file string, config *site.Config, log *slog.Logger, readyFile string) error {
	server, err := startSiteServer(ctx, config, log)
	if err != nil {
		return err
	}
	defer server.Close()
	if err := writeForwarderCredentials(server, config); err != nil {
		return err
	}
	connection, err := bus.Connect(ctx, bus.ConnectConfig{Site: config.Site, Agent: "local-switchboard", URL: server.LocalURL(),
		CredentialsFile: server.CredentialsFile(bus.KindController, "default"), Logger: log})
	if err != nil {
		return err
	}
	defer connection.Close()
	local := site.New(config, connection, log, func() { announceReady(log, readyFile) })
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGHUP)
	defer signal.Stop(changed)
	go func() {
		for {
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
			if err := reloadSite(ctx, file, server, local); err != nil {
				log.Error("the changed configuration is not taken; the one before stays", "error", err)
			} else {
				log.Info("configuration read again", "file", file)
			}
		}
	}()
	return local.Run(ctx)
}

// reloadSite takes forwarders and edge interfaces of a changed file.
func reloadSite(ctx context.Context, file string, server *bus.Server, local *site.Switchboard) error {
	config, err := site.LoadConfig(file)
	if err != nil {
		return err
	}
	if err := writeForwarderCredentials(server, config); err != nil {
		return err
	}
	return local.Reload(ctx, config)
}

// writeForwarderCredentials writes what forwarders connect with.
func writeForwarderCredentials(server *bus.Server, config *site.Config) error {
	for _, f := range config.Forwarders {
		if _, err := server.WriteCredentials(bus.KindForwarder, f.Name); err != nil {
			return err
		}
	}
	return nil
}

func startSiteServer(ctx context.Context, config *site.Config, log *slog.Logger) (*bus.Server, error) {
	server := bus.ServerConfig{Site: config.Site, StoreDirectory: config.Bus.Store, Listen: config.Bus.Listen,
		LocalListen: config.Bus.Agents, Logger: log}
	if config.Bus.Identity != "" {
		identity, err := bus.LoadIdentity(config.Bus.Identity)
		if err != nil {
			return nil, err
		}
		server.Identity = identity
	}
	server.Authorise = func(peer string, _ bus.Access) error {
		if slices.Contains(config.Bus.Refuse, peer) {
			return fmt.Errorf("%w: site %s is in bus.refuse", bus.ErrDenied, peer)
		}
		return nil
	}
	for _, p := range config.Bus.Peers {
		server.Peers = append(server.Peers, bus.Peer{Site: p.Site, Address: p.Address})
	}
	return bus.StartServer(ctx, server)
}

// announceReady tells the service manager, or whoever waits for a file, that the program does its work.
func announceReady(log *slog.Logger, file string) {
	log.Info("ready")
	if file == "" {
		return
	}
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte("ready\n"), 0o644)
	}
	if err != nil {
		log.Warn("the ready file cannot be written", "error", err)
	}
}
