package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorProcess is the supervisor's name in marks and logs.
const supervisorProcess = "supervisor"

// startPatience is how long processes may take to be running.
const startPatience = time.Minute

// ErrInterrupted reports that a laboratory was not brought up to its end. What is there stays, and is gone on with.
var ErrInterrupted = errors.New("interrupted: `switchboard lab up` again goes on, `switchboard lab down` removes what is there")

// Running is a laboratory that Up has brought up.
type Running struct {
	*Laboratory
	// API is the base URL of the northbound API on the host.
	API string
	// TokenFile has the API's token.
	TokenFile string
	// StateDirectory holds logs, configuration and state.
	StateDirectory string
}

// Up brings up the laboratory of a file, or what is missing of it. Resources are not applied: that is the API's part.
func Up(ctx context.Context, root, file string, progress *Progress, wait Handover) (*Running, error) {
	text, err := ReadText(file)
	if err != nil {
		return nil, err
	}
	laboratory, err := Parse(file, text)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("a laboratory needs root, to make network namespaces")
	}
	s := stateOf(root, laboratory.Name)
	if err := s.checkAPI(laboratory); err != nil {
		return nil, err
	}
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.checkSame(file, text); err != nil {
		return nil, err
	}
	// The file first: it names what `lab down` without a file removes.
	if err := writeFile(s.file(), text, 0o644); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.path("runtime"), 0o755); err != nil {
		return nil, err
	}
	all, err := s.readCrews(laboratory)
	if err != nil {
		return nil, err
	}
	for _, site := range laboratory.Sites {
		if err := all[site].resize(laboratory.ForwardersAt(site), ""); err != nil {
			return nil, fmt.Errorf("site %s: %w", site, err)
		}
		all[site].drive(laboratory, site)
	}
	return s.build(ctx, laboratory, all, progress, wait)
}

// checkAPI makes sure, before anything is built, that the API of a laboratory of which nothing runs yet can listen.
func (s state) checkAPI(laboratory *Laboratory) error {
	if running, err := processesOf(s.Name); err != nil || len(running) > 0 {
		return err
	}
	listener, err := net.Listen("tcp", laboratory.API.String())
	if err != nil {
		return fmt.Errorf("spec.api: %w; write another address or port, or port 0 for a free one", err)
	}
	return listener.Close()
}

// build brings about a laboratory with its forwarders, or what is missing of it.
func (s state) build(ctx context.Context, laboratory *Laboratory, all crews, progress *Progress, wait Handover) (*Running, error) {
	if err := writeJSON(s.crewsFile(), all); err != nil {
		return nil, err
	}
	p := newPlan(laboratory, all)
	if err := ensureNetwork(p); err != nil {
		return nil, err
	}
	progress.Step("network: %d sites, %d links, %d hosts in %d namespaces", len(p.Sites), len(p.Links), len(p.machines()), len(p.namespaces()))
	if ctx.Err() != nil {
		return nil, ErrInterrupted
	}
	processes, err := s.configureAndRun(ctx, p)
	if err != nil {
		return nil, err
	}
	progress.Step("%d sites configured, %d processes running", len(p.Sites), processes)
	address, err := os.ReadFile(s.apiFile())
	if err != nil {
		return nil, err
	}
	running := &Running{laboratory, string(bytes.TrimSpace(address)), s.tokenFile(), s.Directory}
	return running, s.dismiss(ctx, running, all, progress, wait)
}

// configureAndRun writes the configuration of all processes and sees to it that they run by it; it returns how many there are.
func (s state) configureAndRun(ctx context.Context, p *plan) (int, error) {
	before := s.readFollowed(p)
	processes, err := s.configure(p)
	if err != nil {
		return 0, err
	}
	// Those that run already: new forwarders wait for what their site's process writes then.
	for process, text := range s.readFollowed(p) {
		if old := before[process]; old != "" && old != text {
			if err := s.signal(process, unix.SIGHUP); err != nil {
				return 0, err
			}
		}
	}
	var made identities
	for i := range processes {
		processes[i].Identity = made.of(processes[i])
	}
	if err := s.ensureSupervisor(processes); err != nil {
		return 0, err
	}
	if err := s.waitRunning(ctx, processes); err != nil {
		return 0, err
	}
	return len(processes), nil
}

// readFollowed reads the files that running processes read again when told to, by their process.
func (s state) readFollowed(p *plan) map[string]string {
	texts := map[string]string{}
	read := func(process, file string) {
		if text, err := os.ReadFile(file); err == nil { // there is none before the first time
			texts[process] = string(text)
		}
	}
	read(underlayProcess, s.underlayFile())
	for _, site := range p.SitePlans {
		read(siteProcess(site.Name), s.siteConfiguration(site.Name))
	}
	return texts
}

// checkSame refuses a file with another network than the laboratory that is there.
func (s state) checkSame(file string, text []byte) error {
	before, err := os.ReadFile(s.file())
	if errors.Is(err, fs.ErrNotExist) || bytes.Equal(before, text) {
		return nil
	}
	if err != nil {
		return err
	}
	old, err := Parse(s.file(), before)
	if err != nil {
		return nil
	}
	new, err := Parse(file, text)
	if err != nil {
		return err
	}
	if fingerprint(old) != fingerprint(new) {
		return fmt.Errorf("laboratory %s is up with other sites, links or hosts: run `switchboard lab down --lab %s` first", s.Name, s.Name)
	}
	return nil
}

// fingerprint says what a laboratory's network is; VNFs may come later.
func fingerprint(l *Laboratory) string {
	hosts := l.machines()
	for index := range hosts {
		hosts[index].line, hosts[index].field = 0, ""
	}
	return fmt.Sprint(l.GlobalSite, l.API, l.MTU, hosts, l.Sites, l.Links)
}

// ensureSupervisor starts one for a list of processes. Where the list or a program has changed the supervisor is
// replaced; the next adopts what runs from the same program, and starts the rest anew.
func (s state) ensureSupervisor(processes []process) error {
	running, err := s.supervisors()
	if err != nil {
		return err
	}
	var before []process
	same := readJSON(s.processesFile(), &before) == nil && fmt.Sprint(before) == fmt.Sprint(processes)
	if len(running) > 0 && same {
		return nil
	}
	if err := endAll(s.supervisors); err != nil {
		return err
	}
	if err := writeJSON(s.processesFile(), processes); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	output, err := openLog(s.log(supervisorProcess))
	if err != nil {
		return err
	}
	defer output.Close()
	command := exec.Command(program, "lab", "supervise", "--lab", s.Name, "--state", s.root())
	command.Stdout, command.Stderr = output, output
	command.Dir = "/"
	command.Env = append(os.Environ(), markVariable+"="+s.Name+"/"+supervisorProcess)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return err
	}
	return command.Process.Release()
}

// waitRunning returns when every process runs and the API listens.
func (s state) waitRunning(ctx context.Context, processes []process) error {
	patience := time.After(startPatience)
	for {
		missing := s.missing(processes)
		if missing == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return ErrInterrupted
		case <-patience:
			return fmt.Errorf("%s is not running: see %s", missing, s.log(missing))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// missing names a process that does not run, or runs from what it was made of before. The Global Switchboard is there when it has made its token.
func (s state) missing(processes []process) string {
	for _, one := range processes {
		var record processRecord
		if readJSON(s.record(one.Name), &record) != nil || !record.running() || record.Identity != one.Identity {
			return one.Name
		}
	}
	if _, err := os.Stat(s.tokenFile()); err != nil {
		return globalProcessName
	}
	return ""
}
