package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/switchboard-project/switchboard/internal/bus"
)

func newAuthorityCommand() *cobra.Command {
	var directory string
	var life time.Duration
	open := func() (*bus.Authority, error) {
		if directory == "" {
			return nil, usageError{errors.New("authority: say with --directory where the authority keeps its key")}
		}
		authority, err := bus.NewAuthority(directory)
		if err == nil {
			authority.CertificateLife = life
		}
		return authority, err
	}
	command := &cobra.Command{
		Use:   "authority",
		Short: "Say which machine is which site: make enrolment tokens, and give out certificates",
		Long: "The platform's certificate authority is a directory, made at first use. Whoever reads it can be any site. It is needed\n" +
			"while sites enrol, and at no other time.",
	}
	command.PersistentFlags().StringVar(&directory, "directory", "", "the authority's directory")
	command.AddCommand(newAuthorityTokenCommand(open), newAuthorityServeCommand(open, &life))
	return group(command)
}

func newAuthorityTokenCommand(open func() (*bus.Authority, error)) *cobra.Command {
	var validity time.Duration
	command := &cobra.Command{
		Use:     "token SITE --directory DIRECTORY",
		Short:   "Make a token with which a machine may become a site, once",
		Example: "  switchboard authority token edge-a --directory /var/lib/switchboard/authority > edge-a.token",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			if validity <= 0 {
				return usageError{errors.New("authority token: --validity: give more than 0")}
			}
			authority, err := open()
			if err != nil {
				return err
			}
			token, err := authority.Token(arguments[0], validity)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), token)
			return err
		},
	}
	durationFlag(command.Flags(), &validity, "validity", time.Hour, "how long the token may be used")
	return command
}

func newAuthorityServeCommand(open func() (*bus.Authority, error), life *time.Duration) *cobra.Command {
	var listen, readyFile string
	command := &cobra.Command{
		Use:   "serve --directory DIRECTORY --listen HOST:PORT",
		Short: "Give certificates to machines with tokens, over TLS, until interrupted",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			log, err := newLogger("info")
			if err != nil {
				return err
			}
			authority, err := open()
			if err != nil {
				return err
			}
			configuration, err := authority.ServerTLS()
			if err != nil {
				return err
			}
			listener, err := net.Listen("tcp", listen)
			if err != nil {
				return err
			}
			server := &http.Server{Handler: authority.Handler(), TLSConfig: configuration, ReadTimeout: time.Minute}
			go func() {
				<-command.Context().Done()
				ending, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				_ = server.Shutdown(ending) // what is left after that is cut off
			}()
			announceReady(log, readyFile)
			if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}
	command.Flags().StringVar(&listen, "listen", "", "where sites enrol, HOST:PORT")
	durationFlag(command.Flags(), life, "certificate-life", 0, "how long certificates hold (default ten years)")
	command.Flags().StringVar(&readyFile, "ready-file", "", "write this file when it listens")
	_ = command.MarkFlagRequired("listen")
	return command
}

// enrolFlags are those of `switchboard enrol`.
type enrolFlags struct{ identity, from, tokenFile, authority string }

func newEnrolCommand() *cobra.Command {
	flags := &enrolFlags{}
	command := &cobra.Command{
		Use:   "enrol SITE --identity DIRECTORY (--from HOST:PORT --token-file FILE | --authority DIRECTORY)",
		Short: "Make this machine a site: a key that never leaves it, and a certificate for it",
		Long: "Run once before the first `switchboard site`, and again with a new token to renew the certificate; the key is kept.\n" +
			"The token tells the authority from an impostor: nothing else need be trusted.",
		Example: "  switchboard enrol core --identity /var/lib/switchboard/core/identity --authority /var/lib/switchboard/authority\n" +
			"  switchboard enrol edge-a --identity /var/lib/switchboard/edge-a/identity --from 192.0.2.1:7401 --token-file edge-a.token",
		Args: usageArgs(cobra.ExactArgs(1)),
		RunE: func(command *cobra.Command, arguments []string) error {
			identity, err := flags.enrol(command.Context(), arguments[0], command.InOrStdin())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "site %s is enrolled until %s\n", identity.Site,
				identity.Certificate.Leaf.NotAfter.UTC().Format(time.DateOnly))
			return err
		},
	}
	f := command.Flags()
	f.StringVar(&flags.identity, "identity", "", "directory of the site's key and certificates, bus.identity of its configuration")
	f.StringVar(&flags.from, "from", "", "where `switchboard authority serve` listens")
	f.StringVar(&flags.tokenFile, "token-file", "", "file with the token; - reads standard input")
	f.StringVar(&flags.authority, "authority", "", "directory of the authority, where that is on this machine")
	_ = command.MarkFlagRequired("identity")
	return command
}

func (flags *enrolFlags) enrol(ctx context.Context, site string, input io.Reader) (*bus.Identity, error) {
	if (flags.authority != "") == (flags.from != "") || (flags.from != "") != (flags.tokenFile != "") {
		return nil, usageError{errors.New("enrol: give either --from and --token-file, or --authority")}
	}
	if flags.authority != "" {
		authority, err := bus.NewAuthority(flags.authority)
		if err != nil {
			return nil, err
		}
		return authority.EnrolSite(site, flags.identity)
	}
	read := func() ([]byte, error) { return os.ReadFile(flags.tokenFile) }
	if flags.tokenFile == "-" {
		read = func() ([]byte, error) { return io.ReadAll(input) }
	}
	token, err := read()
	if err != nil {
		return nil, err
	}
	return bus.Enrol(ctx, flags.from, strings.TrimSpace(string(token)), site, flags.identity)
}
