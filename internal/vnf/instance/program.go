package instance

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// program is the operator's own, which a label-aware instance runs in its namespace. It outlives the site's process, which finds
// it again by a mark in its environment. docs/label-aware.md is its contract.
type program struct {
	vnf      string
	words    []string // what the site's configuration says for the VNF
	instance string   // the namespace, which is the mark
	places   string   // file with the instance's places
	output   string   // file with what it writes
	written  string   // what is in places

	running *os.Process
	started time.Time  // of one that this process started
	ended   chan error // of one that this process started
	// failed is when it ended, and why.
	failed time.Time
	why    string
}

const (
	programMark = "SWITCHBOARD_INSTANCE="
	// programEnd is how long a program may take to end when it is asked to.
	programEnd = 2 * time.Second
	// programBegins is how long a new program may take before it gives probes back.
	programBegins = 5 * time.Second
	// programHangs is how long a program may give no probe back, at any place, before it is started again.
	programHangs = 5 * time.Second
)

func (a *Agent) program(d Deployment, instance string) *program {
	return &program{vnf: d.VNF, words: a.config.Programs[d.VNF], instance: a.config.Prefix + instance,
		places: filepath.Join(a.config.Directory, instance+".places.json"), output: filepath.Join(a.config.Directory, instance+".log")}
}

// visit is what packets of one direction bear when they come to an instance.
type visit struct {
	// ChainLabel and EgressLabel are the two labels, outer first.
	ChainLabel  uint32 `json:"chainLabel"`
	EgressLabel uint32 `json:"egressLabel"`
	// ServicePath is the service path identifier; 0 where the path has none.
	ServicePath uint32 `json:"servicePath"`
	// ServiceIndex is also the egress label's TTL.
	ServiceIndex uint32 `json:"serviceIndex"`
}

// header is what stands between the Ethernet addresses and the IP packet: EtherType and context.
func (v visit) header(kind vnf.Kind, ipv6 bool) []byte {
	const ttl, bottom = 63, 1 << 8
	if kind == vnf.LabelAwareMpls { // RFC 3032
		header := []byte{0x88, 0x47}
		header = binary.BigEndian.AppendUint32(header, v.ChainLabel<<12|ttl)
		return binary.BigEndian.AppendUint32(header, v.EgressLabel<<12|bottom|v.ServiceIndex)
	}
	const words, metadataType1, ipv4Inside, ipv6Inside = 6, 1, 1, 2 // RFC 8300
	inside := uint32(ipv4Inside)
	if ipv6 {
		inside = ipv6Inside
	}
	header := []byte{0x89, 0x4f}
	header = binary.BigEndian.AppendUint32(header, ttl<<22|words<<16|metadataType1<<8|inside)
	header = binary.BigEndian.AppendUint32(header, v.ServicePath<<8|v.ServiceIndex)
	return append(header, make([]byte, 16)...)
}

// same reports whether two headers say the same of where a packet is: a program may change the loop guard.
func (v visit) same(a, b []byte, kind vnf.Kind) bool {
	if kind == vnf.LabelAwareMpls {
		return bytes.Equal(a[:5], b[:5]) && bytes.Equal(a[6:], b[6:])
	}
	return bytes.Equal(a[:2], b[:2]) && bytes.Equal(a[6:10], b[6:10])
}

// programPlace is a place as programs read it.
type programPlace struct {
	Customer string         `json:"customer"`
	Chain    string         `json:"chain"`
	Stage    uint32         `json:"stage"`
	Forward  visit          `json:"forward"`
	Reverse  visit          `json:"reverse"`
	Options  map[string]any `json:"options"`
}

// placesOf describes an instance's records for its program; options that a chain leaves out are those that the VNF declares.
func placesOf(all []*record, declared []*api.VnfOption) []programPlace {
	const first = 255 // the service index before the first VNF, in either direction
	places := []programPlace{}
	for _, one := range all {
		options := map[string]any{}
		for _, option := range declared {
			if option.DefaultValue != nil {
				options[option.Name] = option.DefaultValue.AsInterface()
			}
		}
		for name, value := range one.options().AsMap() {
			options[name] = value
		}
		label, egress, stage := one.Place.ChainLabel, one.Place.EgressLabel, one.Place.Stage
		places = append(places, programPlace{Customer: one.Customer, Chain: one.Chain, Stage: stage, Options: options,
			Forward: visit{label, egress, one.Paths[0], first - (stage - 1)},
			Reverse: visit{label + 1, egress, one.Paths[1], first - (one.Vnfs - stage)}})
	}
	return places
}

// run writes the places and makes sure that the program runs. One that ended is started again after rebuildDelay.
func (p *program) run(namespace *hostnet.Namespace, kind vnf.Kind, all []*record, declared []*api.VnfOption) error {
	if len(p.words) == 0 {
		return fmt.Errorf("vnf.programs.%s: the site's configuration names no program for the VNF", p.vnf)
	}
	text, err := json.MarshalIndent(map[string]any{"places": placesOf(all, declared)}, "", "  ")
	if err != nil {
		return err
	}
	if err := p.write(string(text) + "\n"); err != nil {
		return err
	}
	if p.running == nil && p.failed.IsZero() {
		if err := p.adopt(namespace); err != nil {
			return err
		}
	}
	p.look()
	if p.running != nil {
		return nil
	}
	if time.Since(p.failed) < rebuildDelay {
		return errors.New(p.why)
	}
	for _, left := range p.find(namespace) { // what it had started itself
		_ = left.Kill()
		_ = left.Release()
	}
	return p.start(namespace, kind)
}

// begins reports whether the program may need a moment more before it gives probes back. One that has ended before gets none.
func (p *program) begins() bool { return p.why == "" && time.Since(p.started) < programBegins }

// excuse begins to watch a program that has not answered. The function that it returns reports whether that was no fault of the
// program: it has just begun, or it was ready to run and the machine gave it no processor for most of the time since.
func (p *program) excuse(namespace *hostnet.Namespace) func() bool {
	all := p.find(namespace)
	count := func() (ran, waited time.Duration) {
		for _, one := range all {
			r, w := schedule(one.Pid)
			ran, waited = ran+r, waited+w
		}
		return ran, waited
	}
	begun := time.Now()
	ranBefore, waitedBefore := count()
	return func() bool {
		ran, waited := count()
		starved := waited - waitedBefore
		return p.begins() || starved > time.Since(begun)/2 && starved > ran-ranBefore
	}
}

// schedule is how long a process's threads ran, and how long they were ready and did not (proc(5), schedstat).
func schedule(process int) (ran, waited time.Duration) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", process))
	for _, file := range files {
		text, _ := os.ReadFile(file) // it may have ended
		var on, off int64
		_, _ = fmt.Sscan(string(text), &on, &off)
		ran, waited = ran+time.Duration(on), waited+time.Duration(off)
	}
	return ran, waited
}

// diagnosis says what is known of a program that does not give back what it is sent.
func (p *program) diagnosis() string {
	if p.look(); p.running == nil {
		return p.why
	}
	return fmt.Sprintf("program %s (process %d) does not give them back with the service index less by one; see %s", p.words[0], p.running.Pid, p.output)
}

// kill ends a program that hangs, with what it started; the answer is what is told of it.
func (p *program) kill(namespace *hostnet.Namespace) string {
	for _, found := range p.find(namespace) {
		_ = found.Kill()
		_ = found.Release()
	}
	p.why = fmt.Sprintf("program %s gave no probe back for %s and was ended; see %s", p.words[0], programHangs, p.output)
	p.running, p.ended, p.failed = nil, nil, time.Now()
	return p.why
}

// write replaces the file of places in one step.
func (p *program) write(text string) error {
	if text == p.written {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(p.places), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p.places+".new", []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(p.places+".new", p.places); err != nil {
		return err
	}
	p.written = text
	return nil
}

// look sees whether the program has ended.
func (p *program) look() {
	if p.running == nil {
		return
	}
	reason := error(nil)
	select {
	case reason = <-p.ended: // never of an adopted one
	default:
		if p.ended != nil || !gone(p.running) {
			return
		}
		reason = errors.New("it is gone")
	}
	if reason == nil {
		reason = errors.New("exit status 0")
	}
	p.why = fmt.Sprintf("program %s ended: %v; see %s", p.words[0], reason, p.output)
	_ = p.running.Release()
	p.running, p.ended, p.failed = nil, nil, time.Now()
}

// start starts the program inside the namespace. It is in a session of its own: it goes on without this process.
func (p *program) start(namespace *hostnet.Namespace, kind vnf.Kind) error {
	output, err := os.Create(p.output)
	if err != nil {
		return err
	}
	defer output.Close()
	context := "mpls"
	if kind == vnf.LabelAwareNsh {
		context = "nsh"
	}
	command := exec.Command(p.words[0], p.words[1:]...)
	command.Env = append(os.Environ(), programMark+p.instance, "SWITCHBOARD_VNF="+p.vnf, "SWITCHBOARD_CONTEXT="+context,
		"SWITCHBOARD_INTERFACE="+labelLink, "SWITCHBOARD_PLACES="+p.places)
	command.Stdout, command.Stderr = output, output
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := namespace.Start(command); err != nil {
		p.why, p.failed = fmt.Sprintf("program %s does not start: %v", p.words[0], err), time.Now()
		return errors.New(p.why)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	p.running, p.ended, p.failed, p.started = command.Process, ended, time.Time{}, time.Now()
	return nil
}

// adopt finds the program that an earlier process started, with what it started itself: that is in the program's session. What is not
// the program that the configuration names now is ended.
func (p *program) adopt(namespace *hostnet.Namespace) error {
	marked := p.find(namespace)
	for _, found := range marked {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", found.Pid))
		if leads(found) && slices.Equal(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00"), p.words) {
			p.running = found
			break
		}
	}
	for _, found := range marked {
		if session, err := unix.Getsid(found.Pid); p.running != nil && err == nil && session == p.running.Pid {
			continue
		}
		if err := endProcess(found); err != nil {
			return err
		}
	}
	return nil
}

// leads reports whether the process leads a session, as the program does; what it starts is in its session.
func leads(process *os.Process) bool {
	session, err := unix.Getsid(process.Pid)
	return err == nil && session == process.Pid
}

// find lists the processes inside the namespace that bear the mark.
func (p *program) find(namespace *hostnet.Namespace) (found []*os.Process) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !namespace.Holds(pid) {
			continue
		}
		environment, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if slices.Contains(strings.Split(string(environment), "\x00"), programMark+p.instance) {
			if process, err := os.FindProcess(pid); err == nil {
				found = append(found, process)
			}
		}
	}
	return found
}

// end ends the program, whoever started it, and removes its files.
func (p *program) end(namespace *hostnet.Namespace) error {
	for _, found := range p.find(namespace) {
		if err := endProcess(found); err != nil {
			return err
		}
	}
	p.running, p.ended, p.written = nil, nil, ""
	for _, file := range []string{p.places, p.output} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// endProcess asks a process to end, and ends it where it does not.
func endProcess(process *os.Process) error {
	defer func() { _ = process.Release() }()
	_ = process.Signal(syscall.SIGTERM)
	for begun := time.Now(); time.Since(begun) < programEnd; time.Sleep(10 * time.Millisecond) {
		if gone(process) {
			return nil
		}
	}
	_ = process.Kill()
	for begun := time.Now(); time.Since(begun) < programEnd; time.Sleep(10 * time.Millisecond) {
		if gone(process) {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", process.Pid)
}

// gone reports whether a process has ended; one that nobody has waited for yet has.
func gone(process *os.Process) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process.Pid))
	if err != nil {
		return true
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "Z") || process.Signal(syscall.Signal(0)) != nil
}
