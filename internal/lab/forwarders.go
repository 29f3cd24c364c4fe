package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// maximumForwarders is how many forwarders of a site may have run in a laboratory's life: each has a number, an interface and an
// address of its own, and a forwarder that was removed is not found again under its name.
const maximumForwarders = 200

// crew says which forwarders a site has.
type crew struct {
	// Numbers of those that are to run, in order: number 1 is f1.
	Numbers []int `json:"numbers"`
	// Leaving are those that hand over what they have, and end then.
	Leaving []int `json:"leaving,omitempty"`
	// Last is the largest number given so far.
	Last int `json:"last"`
	// Interfaces says which forwarder drives each interface with hosts behind it, by its number.
	Interfaces map[string]int `json:"interfaces,omitempty"`
}

// crews are those of a laboratory's sites.
type crews map[string]*crew

func forwarderName(number int) string { return "f" + strconv.Itoa(number) }

// ForwardersAt is how many forwarders the file wants at a site.
func (l *Laboratory) ForwardersAt(site string) int {
	if count, named := l.Forwarders[site]; named {
		return count
	}
	return max(1, l.EveryForwarders)
}

// crewsOf are those of a laboratory that begins.
func crewsOf(l *Laboratory) crews {
	all := crews{}
	for _, site := range l.Sites {
		all[site] = &crew{}
		// A file's numbers have been checked.
		_ = all[site].resize(l.ForwardersAt(site), "")
		all[site].drive(l, site)
	}
	return all
}

// readCrews reads which forwarders a laboratory has; those of a laboratory that begins where there is nothing to read.
func (s state) readCrews(l *Laboratory) (crews, error) {
	all := crews{}
	err := readJSON(s.crewsFile(), &all)
	if errors.Is(err, fs.ErrNotExist) {
		return crewsOf(l), nil
	}
	if err != nil {
		return nil, err
	}
	for site, begun := range crewsOf(l) {
		if all[site] == nil {
			all[site] = begun
		}
	}
	return all, nil
}

// resize brings a crew to a size: new forwarders get new numbers; the last go, or first the one that is named.
func (c *crew) resize(count int, first string) error {
	if count < 1 || count > maximumForwarders {
		return fmt.Errorf("%d forwarders: a site has 1 to %d", count, maximumForwarders)
	}
	if first != "" {
		at := slices.IndexFunc(c.Numbers, func(number int) bool { return forwarderName(number) == first })
		if at < 0 {
			return fmt.Errorf("there is no forwarder %s: use one of %s", first, strings.Join(c.names(), ", "))
		}
		c.Leaving = append(c.Leaving, c.Numbers[at])
		c.Numbers = slices.Delete(c.Numbers, at, at+1)
	}
	for len(c.Numbers) > count {
		last := len(c.Numbers) - 1
		c.Leaving = append(c.Leaving, c.Numbers[last])
		c.Numbers = c.Numbers[:last]
	}
	for len(c.Numbers) < count {
		if c.Last++; c.Last > maximumForwarders {
			return fmt.Errorf("more than %d forwarders have run at the site: begin the laboratory anew", maximumForwarders)
		}
		c.Numbers = append(c.Numbers, c.Last)
	}
	return nil
}

func (c *crew) names() []string {
	var names []string
	for _, number := range c.Numbers {
		names = append(names, forwarderName(number))
	}
	return names
}

// drive gives each interface with hosts behind it a forwarder that stays: the one it has, the one with the fewest otherwise. All
// of a forwarder that goes are given to the same.
func (c *crew) drive(l *Laboratory, site string) {
	wanted, load := map[string]int{}, map[int]int{}
	for _, host := range l.machines() {
		if host.Site == site {
			wanted[host.Interface] = c.Interfaces[host.Interface]
		}
	}
	for _, number := range wanted {
		load[number]++
	}
	heirs := map[int]int{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		before := wanted[name]
		if slices.Contains(c.Numbers, before) {
			continue
		}
		heir, known := heirs[before]
		if !known || before == 0 {
			heir = slices.MinFunc(c.Numbers, func(a, b int) int { return load[a] - load[b] })
			heirs[before] = heir
		}
		wanted[name] = heir
		load[heir]++
	}
	c.Interfaces = wanted
}

// Handover waits until forwarders of a site have handed over everything and are listed no more.
type Handover func(ctx context.Context, running *Running, site string, names []string) error

// Scale brings a site of a running laboratory to a number of forwarders, while connections go on. A forwarder that goes hands over
// what it has first; remove names the one that goes first, empty: the last.
func Scale(ctx context.Context, root, name, site string, count int, remove string, progress *Progress, wait Handover) (*Running, error) {
	name, err := FindName(root, name)
	if err != nil {
		return nil, err
	}
	s := stateOf(root, name)
	unlock, err := s.lock()
	if err != nil {
		return nil, err
	}
	defer unlock()
	laboratory, err := ReadFile(s.file())
	if err != nil {
		return nil, err
	}
	all, err := s.readCrews(laboratory)
	if err != nil {
		return nil, err
	}
	if all[site] == nil || !slices.Contains(laboratory.Sites, site) {
		return nil, fmt.Errorf("laboratory %s has no site %q: use one of %v", name, site, laboratory.Sites)
	}
	if err := all[site].resize(count, remove); err != nil {
		return nil, fmt.Errorf("site %s: %w", site, err)
	}
	all[site].drive(laboratory, site)
	return s.build(ctx, laboratory, all, progress, wait)
}

// dismiss ends forwarders that leave, when they have handed everything over.
func (s state) dismiss(ctx context.Context, running *Running, all crews, progress *Progress, wait Handover) error {
	for _, site := range running.Sites {
		c := all[site]
		if len(c.Leaving) == 0 {
			continue
		}
		var names []string
		for _, number := range c.Leaving {
			names = append(names, forwarderName(number))
		}
		if err := wait(ctx, running, site, names); err != nil {
			return fmt.Errorf("site %s: %s: %w", site, strings.Join(names, ", "), err)
		}
		ended := c.Leaving
		c.Leaving = nil
		if err := writeJSON(s.crewsFile(), all); err != nil {
			return err
		}
		if _, err := s.configureAndRun(ctx, newPlan(running.Laboratory, all)); err != nil {
			return err
		}
		for _, number := range ended {
			name := forwarderProcess(site, number)
			if err := errors.Join(s.endProcess(name+spareSuffix), s.endProcess(name)); err != nil {
				return err
			}
			if err := errors.Join(os.RemoveAll(s.flowTables(flowDirectory(site, number))),
				os.RemoveAll(s.sitePath(site, "forwarder-"+forwarderName(number)))); err != nil {
				return err
			}
		}
		progress.Step("site %s: %s handed over everything and ended", site, strings.Join(names, ", "))
	}
	return nil
}

// forwarderProcess is a forwarder's name in records and logs: the first is that of its site.
func forwarderProcess(site string, number int) string {
	if number == 1 {
		return "forwarder-" + site
	}
	return "forwarder-" + site + "." + forwarderName(number)
}

func flowDirectory(site string, number int) string {
	return strings.TrimPrefix(forwarderProcess(site, number), "forwarder-")
}

// endProcess ends a process that no supervisor watches any more, and its record.
func (s state) endProcess(name string) error {
	var record processRecord
	if err := readJSON(s.record(name), &record); err != nil || !record.running() {
		_ = os.Remove(s.record(name))
		return nil
	}
	if err := s.signal(name, unix.SIGTERM); err != nil {
		return err
	}
	for asked := time.Now(); record.running(); time.Sleep(10 * time.Millisecond) {
		if time.Since(asked) > patience {
			if err := s.signal(name, unix.SIGKILL); err != nil {
				return err
			}
			asked = time.Now()
		}
	}
	return os.Remove(s.record(name))
}

// signal sends a signal to a process if it runs.
func (s state) signal(name string, signal unix.Signal) error {
	var record processRecord
	if err := readJSON(s.record(name), &record); err != nil || !record.running() {
		return nil
	}
	descriptor, err := unix.PidfdOpen(record.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", record.PID, err)
	}
	defer unix.Close(descriptor)
	if !record.running() { // another has the number now
		return nil
	}
	if err := unix.PidfdSendSignal(descriptor, signal, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d: %w", record.PID, err)
	}
	return nil
}
