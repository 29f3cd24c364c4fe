package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
)

const (
	idleSites  = 5
	idleAgents = 4 // per site, each registered and subscribed to every other site
	idleSettle = 8 * time.Second
	idleTime   = 20 * time.Second
)

// idleConfig is what a site's process of the idle measurement is told.
type idleConfig struct {
	Site, Store, Identity, Listen string
	Peers                         []bus.Peer
}

// idle measures what five linked sites with nothing to do cost, one process each, as a site process with its agents is.
func idle(ctx context.Context, r *report) error {
	p, err := newPlatform()
	if err != nil {
		return err
	}
	defer p.close()
	var peers []bus.Peer
	var configs []idleConfig
	for i := range idleSites {
		c, err := p.configuration(fmt.Sprintf("site%d", i))
		if err != nil {
			return err
		}
		peers = append(peers, bus.Peer{Site: c.Site, Address: c.Listen})
		configs = append(configs, idleConfig{Site: c.Site, Store: c.StoreDirectory, Listen: c.Listen,
			Identity: filepath.Join(p.directory, c.Site, "identity")})
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var processes []*os.Process
	for i, c := range configs {
		c.Peers = append(append(c.Peers, peers[:i]...), peers[i+1:]...)
		process, err := startIdle(ctx, p.directory, c)
		if err != nil {
			return err
		}
		defer process.Wait() // ends with ctx
		processes = append(processes, process.Process)
	}
	time.Sleep(idleSettle)
	before, err := processorTime(processes)
	if err != nil {
		return err
	}
	time.Sleep(idleTime)
	after, err := processorTime(processes)
	if err != nil {
		return err
	}
	memory := 0.0
	for _, process := range processes {
		m, err := residentMegabytes(process.Pid)
		if err != nil {
			return err
		}
		memory += m / idleSites
	}
	cancel()
	r.add(fmt.Sprintf("%d idle linked sites with %d agents each: processor", idleSites, idleAgents),
		100*(after-before).Seconds()/idleTime.Seconds(), "% of one core")
	r.add("resident memory of an idle site's process with its agents", memory, "MB")
	return nil
}

func startIdle(ctx context.Context, directory string, c idleConfig) (*exec.Cmd, error) {
	text, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(directory, c.Site+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, self, "-site", file)
	process.Stderr = os.Stderr
	return process, process.Start()
}

// idleSite is one site's process: its server and agents that wait for something to happen.
func idleSite(ctx context.Context, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var c idleConfig
	if err := json.Unmarshal(text, &c); err != nil {
		return err
	}
	id, err := bus.LoadIdentity(c.Identity)
	if err != nil {
		return err
	}
	p := &platform{directory: os.TempDir()}
	quiet := slog.New(slog.DiscardHandler)
	server, err := p.start(ctx, bus.ServerConfig{Site: c.Site, StoreDirectory: c.Store, Listen: c.Listen,
		LocalListen: "127.0.0.1:0", Identity: id, Peers: c.Peers, Logger: quiet})
	if err != nil {
		return err
	}
	for i := range idleAgents {
		name := fmt.Sprintf("agent%d", i)
		agent, err := p.agent(ctx, server, name)
		if err != nil {
			return err
		}
		if _, err := agent.Register(ctx, "agent", name, nil); err != nil {
			return err
		}
		for _, peer := range c.Peers {
			presence, err := agent.WatchPresenceAt(ctx, peer.Site, "agent")
			if err != nil {
				return err
			}
			go func() {
				for range presence {
				}
			}()
		}
	}
	<-ctx.Done()
	return nil
}

// processorTime is what processes have used, user and system.
func processorTime(processes []*os.Process) (time.Duration, error) {
	sum := time.Duration(0)
	for _, p := range processes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Pid))
		if err != nil {
			return 0, err
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, err
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
		}
	}
	return sum, nil
}

func residentMegabytes(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			return kilobytes / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d tells no resident memory", pid)
}
