package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	apiv1 "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/gen/switchboard/api/v1/apiv1connect"
	"github.com/switchboard-project/switchboard/internal/api"
	"github.com/switchboard-project/switchboard/internal/lab"
)

// clientFlags say which Global Switchboard a command speaks to.
type clientFlags struct {
	server, tokenFile, context string
	// patience is how long an answer may take; 0: answerPatience.
	patience time.Duration
}

const (
	serverVariable  = "SWITCHBOARD_SERVER"
	tokenVariable   = "SWITCHBOARD_TOKEN_FILE"
	configVariable  = "SWITCHBOARD_CONFIG"
	defaultServer   = "http://127.0.0.1:7470"
	answerPatience  = 30 * time.Second
	connectPatience = 5 * time.Second
)

func (c *clientFlags) add(command *cobra.Command) {
	f := command.Flags()
	f.StringVar(&c.server, "server", "", "the API: http://ADDRESS:PORT or unix:PATH ($"+serverVariable+")")
	f.StringVar(&c.tokenFile, "token-file", "", "file of the API's token ($"+tokenVariable+")")
	f.StringVar(&c.context, "context", "", "context of the configuration file to use")
	durationFlag(f, &c.patience, "request-timeout", answerPatience, "how long to wait for an answer of the API")
}

// configDirectory is where the command line keeps its configuration.
func configDirectory() string {
	if directory, err := os.UserConfigDir(); err == nil {
		return filepath.Join(directory, "switchboard")
	}
	return ".switchboard"
}

func defaultTokenFile() string { return filepath.Join(configDirectory(), "token") }

// clientConfig is the file config.yaml.
type clientConfig struct {
	CurrentContext string `yaml:"currentContext"`
	Contexts       []struct {
		Name      string `yaml:"name"`
		Server    string `yaml:"server"`
		TokenFile string `yaml:"tokenFile"`
	} `yaml:"contexts"`
}

func readClientConfig() (*clientConfig, string, error) {
	path := os.Getenv(configVariable)
	if path == "" {
		path = filepath.Join(configDirectory(), "config.yaml")
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return &clientConfig{}, path, nil
	}
	if err != nil {
		return nil, path, err
	}
	config := &clientConfig{}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(config); err != nil {
		return nil, path, usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return config, path, nil
}

// resolve finds server and token file: flags come first, then the environment, the configuration file, the only
// laboratory of this machine, the defaults.
func (c *clientFlags) resolve() (server, tokenFile string, err error) {
	server, tokenFile = first(c.server, os.Getenv(serverVariable)), first(c.tokenFile, os.Getenv(tokenVariable))
	config, path, err := readClientConfig()
	if err != nil {
		return "", "", err
	}
	wanted := first(c.context, config.CurrentContext)
	found := wanted == ""
	for _, one := range config.Contexts {
		if one.Name == wanted {
			found = true
			server, tokenFile = first(server, one.Server), first(tokenFile, one.TokenFile)
		}
	}
	if !found {
		return "", "", usageError{fmt.Errorf("%s has no context %q", path, wanted)}
	}
	if server == "" && tokenFile == "" {
		if server, tokenFile, err = lab.Endpoint(lab.DefaultRoot); err != nil {
			return "", "", usageError{err}
		}
	}
	return first(server, defaultServer), first(tokenFile, defaultTokenFile()), nil
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// client makes the API's client.
func (c *clientFlags) client() (apiv1connect.SwitchboardServiceClient, error) {
	server, tokenFile, err := c.resolve()
	if err != nil {
		return nil, err
	}
	token, err := api.ReadToken(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("%w; name the file that `switchboard global` wrote with --token-file or $%s", err, tokenVariable)
	}
	dialer := &net.Dialer{Timeout: connectPatience}
	transport := &http.Transport{DialContext: dialer.DialContext}
	address := server
	switch path, unix := strings.CutPrefix(server, "unix:"); {
	case unix:
		address = "http://switchboard"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return dialer.DialContext(ctx, "unix", path) }
	case strings.HasPrefix(server, "http://"), strings.HasPrefix(server, "https://"):
		address = strings.TrimSuffix(server, "/")
	default:
		return nil, usageError{fmt.Errorf("server %q: write http://ADDRESS:PORT or unix:PATH", server)}
	}
	return apiv1connect.NewSwitchboardServiceClient(&http.Client{Transport: bearer{token, transport}}, address,
		connect.WithInterceptors(&patient{server, cmp.Or(c.patience, answerPatience)})), nil
}

// bearer adds the token to requests.
type bearer struct {
	token string
	next  http.RoundTripper
}

// RoundTrip sends one request.
func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.next.RoundTrip(r)
}

// plain is an error of the API without its code in front.
func plain(err error) error {
	var e *connect.Error
	if errors.As(err, &e) {
		return errors.New(e.Message())
	}
	return err
}

// violations are the fields at fault of an error, nil where it has none.
func violations(err error) []*apiv1.FieldViolation {
	var e *connect.Error
	if !errors.As(err, &e) {
		return nil
	}
	for _, detail := range e.Details() {
		if value, err := detail.Value(); err == nil {
			if v, ok := value.(*apiv1.Violations); ok {
				return v.Violations
			}
		}
	}
	return nil
}
