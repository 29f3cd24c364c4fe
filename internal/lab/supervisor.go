package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

const (
	// A process that worked is started again at once; one that ends early waits, longer each time.
	firstBackOff = 100 * time.Millisecond
	lastBackOff  = 5 * time.Second
	// steadyAfter is the run after which a process counts as working.
	steadyAfter = 10 * time.Second
	// patience is how long a process may take to end when asked.
	patience = 3 * time.Second
	// logLimit is the size at which a log is begun anew at a process's start.
	logLimit = 16 << 20
)

// supervisor keeps a laboratory's processes running.
type supervisor struct {
	state
	api    netip.AddrPort
	logger *slog.Logger
	made   identities

	mu        sync.Mutex // guards listeners
	listeners []*os.File
}

// Supervise runs a laboratory's processes until ctx ends, then ends them. There is one supervisor for a laboratory;
// processes that an earlier one left running are adopted.
func Supervise(ctx context.Context, root, name string, logger *slog.Logger) error {
	s := &supervisor{state: stateOf(root, name), logger: logger}
	lock, err := s.hold()
	if err != nil {
		return err
	}
	defer lock.Close()
	laboratory, err := ReadFile(s.file())
	if err != nil {
		return err
	}
	s.api = laboratory.API
	var processes []process
	if err := readJSON(s.processesFile(), &processes); err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, one := range processes {
		running.Go(func() { s.tend(ctx, one) })
	}
	running.Wait()
	return nil
}

// hold makes this the laboratory's only supervisor. One that was killed holds the lock until the last of its threads has ended,
// which is after its first one is seen to be gone; so the next waits a moment.
func (s *supervisor) hold() (*os.File, error) {
	file, err := os.OpenFile(s.supervisorLock(), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil || time.Since(begun) > patience {
			break
		}
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("laboratory %s has a supervisor already", s.Name)
	}
	if err := file.Truncate(0); err != nil {
		return nil, err
	}
	_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return file, err
}

// tend runs one process for as long as ctx lasts.
func (s *supervisor) tend(ctx context.Context, one process) {
	backOff := firstBackOff
	record, adopted := s.adopt(one)
	for restarts := record.Restarts; ; restarts++ {
		begun := time.Now()
		exit := "adopted"
		if adopted {
			begun = record.Since
			exit = s.followAdopted(ctx, record)
			adopted = false
		} else {
			exit = s.runOnce(ctx, one, restarts, record.LastExit)
		}
		if ctx.Err() != nil {
			return
		}
		s.logger.Warn("process ended", "process", one.Name, "how", exit, "after", time.Since(begun).Round(time.Millisecond))
		record.LastExit = exit
		if time.Since(begun) > steadyAfter {
			backOff = 0
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(backOff):
		}
		backOff = min(max(2*backOff, firstBackOff), lastBackOff)
	}
}

// adopt takes over a process that an earlier supervisor left running. One that was made from another program, or with
// other words, is ended.
func (s *supervisor) adopt(one process) (processRecord, bool) {
	var record processRecord
	if err := readJSON(s.record(one.Name), &record); err != nil || !record.running() {
		return record, false
	}
	if record.Identity != s.made.of(one) {
		s.logger.Info("process is replaced: its program has changed", "process", one.Name, "pid", record.PID)
		ended, end := context.WithCancel(context.Background())
		end()
		s.followAdopted(ended, record)
		record.LastExit = "replaced: its program changed"
		return record, false
	}
	s.logger.Info("process adopted", "process", one.Name, "pid", record.PID)
	return record, true
}

// followAdopted waits for a process that is no child to end, and ends it when ctx does.
func (s *supervisor) followAdopted(ctx context.Context, record processRecord) string {
	descriptor, err := unix.PidfdOpen(record.PID, 0)
	if err != nil || !record.running() {
		return "ended while no supervisor was there"
	}
	defer unix.Close(descriptor)
	asked := time.Time{}
	for {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(descriptor), Events: unix.POLLIN}}, 500)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err.Error()
		}
		if ready > 0 {
			return "ended; adopted, so how is unknown"
		}
		switch {
		case ctx.Err() == nil:
		case asked.IsZero():
			asked = time.Now()
			_ = unix.PidfdSendSignal(descriptor, unix.SIGTERM, nil, 0)
		case time.Since(asked) > patience:
			_ = unix.PidfdSendSignal(descriptor, unix.SIGKILL, nil, 0)
		}
	}
}

// runOnce starts a process and waits for its end; it returns how that came.
func (s *supervisor) runOnce(ctx context.Context, one process, restarts int, lastExit string) string {
	if !waitForFiles(ctx, one.WaitFor) {
		return "not started"
	}
	command, err := s.command(ctx, one)
	if err != nil {
		return err.Error()
	}
	defer command.Stdout.(*os.File).Close()
	if err := s.start(one, command); err != nil {
		return "cannot start: " + err.Error()
	}
	if one.Forwards {
		s.prefer(one, command.Process.Pid)
	}
	record := processRecord{PID: command.Process.Pid, Since: time.Now(), Restarts: restarts, LastExit: lastExit}
	record.Start, _ = startTime(record.PID)
	record.Identity = s.made.of(one)
	if err := writeJSON(s.record(one.Name), record); err != nil {
		s.logger.Error("cannot record process", "process", one.Name, "error", err)
	}
	s.logger.Info("process started", "process", one.Name, "pid", record.PID)
	if err := command.Wait(); err != nil {
		return err.Error()
	}
	return "exit status 0"
}

func (s *supervisor) command(ctx context.Context, one process) (*exec.Cmd, error) {
	output, err := openLog(s.log(one.Name))
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, one.Arguments[0], one.Arguments[1:]...)
	command.Stdout, command.Stderr = output, output
	// Programs find each other beside themselves.
	search := filepath.Dir(one.Arguments[0]) + ":" + os.Getenv("PATH")
	command.Env = append(os.Environ(), markVariable+"="+s.Name+"/"+one.Name, "PATH="+search,
		// DPDK keeps its files there, and so `lab down` removes them.
		"RUNTIME_DIRECTORY="+s.path("runtime"))
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = patience
	// Its own session: an interrupt at the terminal is for `lab up` alone, and the scheduler shares processors among
	// sessions (sched(7), autogroups), so that a site process that starts takes no time from a forwarder.
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if one.Listens {
		listeners, err := s.listen()
		if err != nil {
			output.Close()
			return nil, err
		}
		command.ExtraFiles = listeners
	}
	return command, nil
}

func (s *supervisor) start(one process, command *exec.Cmd) error {
	if one.Namespace == "" {
		return command.Start()
	}
	namespace, err := hostnet.OpenNamespace(one.Namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	return namespace.Start(command)
}

// dataPlaneNice is the priority of what packets pass, above everything that only decides about them.
const dataPlaneNice = -10

// prefer lets a process run before others. It works without.
func (s *supervisor) prefer(one process, pid int) {
	err := unix.Setpriority(unix.PRIO_PROCESS, pid, dataPlaneNice)
	// Its session's share counts where the scheduler groups by session; a kernel without has no such file.
	session := os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(strconv.Itoa(dataPlaneNice)), 0)
	if err = errors.Join(err, session); err != nil {
		s.logger.Warn("process has no priority", "process", one.Name, "error", err)
	}
}

// listen opens the API's sockets at first use. A Global Switchboard that was adopted holds those of the supervisor
// before this one, so they can only be opened when it has ended.
func (s *supervisor) listen() ([]*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listeners != nil {
		return s.listeners, nil
	}
	tcp, err := net.Listen("tcp", s.api.String())
	if err != nil {
		return nil, err
	}
	defer tcp.Close()
	if err := os.Remove(s.apiSocket()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	local, err := net.ListenUnix("unix", &net.UnixAddr{Name: s.apiSocket(), Net: "unix"})
	if err != nil {
		return nil, err
	}
	local.SetUnlinkOnClose(false)
	defer local.Close()
	tcpFile, err := tcp.(*net.TCPListener).File()
	if err != nil {
		return nil, err
	}
	localFile, err := local.File()
	if err != nil {
		return nil, err
	}
	s.listeners = []*os.File{tcpFile, localFile}
	return s.listeners, writeFile(s.apiFile(), []byte("http://"+tcp.Addr().String()+"\n"), 0o644)
}

func openLog(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if information, err := os.Stat(path); err == nil && information.Size() > logLimit {
		flags |= os.O_TRUNC
	}
	return os.OpenFile(path, flags, 0o644)
}

func waitForFiles(ctx context.Context, paths []string) bool {
	for _, path := range paths {
		for {
			if _, err := os.Stat(path); err == nil {
				break
			}
			select {
			case <-ctx.Done():
				return false
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return true
}
