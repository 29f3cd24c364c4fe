package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/bus/emulated"
)

// platform is some sites in this process, each with its server, stores in a directory that goes away with it.
type platform struct {
	directory string
	authority *bus.Authority
	closers   []func()
}

func newPlatform() (*platform, error) {
	directory, err := os.MkdirTemp("", "switchboard-bench-bus-*")
	if err != nil {
		return nil, err
	}
	authority, err := bus.NewAuthority(filepath.Join(directory, "authority"))
	if err != nil {
		return nil, err
	}
	return &platform{directory: directory, authority: authority}, nil
}

func (p *platform) close() {
	for i := len(p.closers) - 1; i >= 0; i-- {
		p.closers[i]()
	}
	os.RemoveAll(p.directory)
}

// configuration is that of a site; every site listens for others.
func (p *platform) configuration(name string, peers ...bus.Peer) (bus.ServerConfig, error) {
	id, err := p.authority.EnrolSite(name, filepath.Join(p.directory, name, "identity"))
	if err != nil {
		return bus.ServerConfig{}, err
	}
	listen, err := freeAddress()
	if err != nil {
		return bus.ServerConfig{}, err
	}
	return bus.ServerConfig{
		Site: name, StoreDirectory: filepath.Join(p.directory, name, "store"), Listen: listen,
		LocalListen: "127.0.0.1:0", Identity: id, Peers: peers, Logger: slog.New(slog.DiscardHandler),
	}, nil
}

func (p *platform) start(ctx context.Context, config bus.ServerConfig) (*bus.Server, error) {
	s, err := bus.StartServer(ctx, config)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, s.Close)
	return s, nil
}

func (p *platform) agent(ctx context.Context, s *bus.Server, name string) (*bus.Connection, error) {
	file, err := s.WriteCredentials(bus.KindController, name)
	if err != nil {
		return nil, err
	}
	c, err := bus.Connect(ctx, bus.ConnectConfig{Agent: name, CredentialsFile: file, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, c.Close)
	return c, nil
}

// path is an emulated way to an address; back is the pipe of the site there.
func (p *platform) path(target string, delay time.Duration, back *emulated.Pipe) (*emulated.Path, error) {
	path, err := emulated.NewPath(target, delay, nil, back)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, path.Close)
	return path, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("free address: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// awaitLinks waits until an agent's site has links to all the peers.
func awaitLinks(ctx context.Context, c *bus.Connection, peers ...string) error {
	links, err := c.WatchLinks(ctx)
	if err != nil {
		return err
	}
	up := map[string]bool{}
	for l := range links {
		up[l.Peer] = l.Up
		all := true
		for _, peer := range peers {
			all = all && up[peer]
		}
		if all {
			return nil
		}
	}
	return fmt.Errorf("links of %s did not come up: %w", c.Site(), ctx.Err())
}
