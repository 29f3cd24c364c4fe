package lab

import (
	"context"
	"fmt"
	"io"
	"math"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/switchboard-project/switchboard/internal/hostnet"
)

// Status is what a laboratory is doing.
type Status struct {
	Laboratory string
	Processes  []ProcessStatus
	Links      []LinkStatus
	Machines   []string
}

// ProcessStatus is one process that the supervisor keeps running.
type ProcessStatus struct {
	Name string
	// PID is 0 where it does not run.
	PID      int
	Since    time.Time
	Restarts int
	LastExit string
}

// LinkStatus is a pair of sites as the file wants it and as a ping over the bus's addresses finds it.
type LinkStatus struct {
	From, To string
	// RoundTripMS is twice the latency configured.
	RoundTripMS float64
	RateMbps    float64
	// MeasuredMS is the median of the round trips found, LeastMS the shortest, to which a busy machine has added least; not
	// numbers where no answer came.
	MeasuredMS, LeastMS float64
}

// Inspect finds out what a laboratory is doing; it measures every link, all at once.
func Inspect(ctx context.Context, root, name string) (*Status, error) {
	name, err := FindName(root, name)
	if err != nil {
		return nil, err
	}
	s := stateOf(root, name)
	laboratory, err := ReadFile(s.file())
	if err != nil {
		return nil, err
	}
	all, err := s.readCrews(laboratory)
	if err != nil {
		return nil, err
	}
	p := newPlan(laboratory, all)
	status := &Status{Laboratory: name, Machines: Machines(name)}
	var processes []process
	if err := readJSON(s.processesFile(), &processes); err != nil {
		return nil, err
	}
	for _, one := range processes {
		var record processRecord
		_ = readJSON(s.record(one.Name), &record)
		if !record.running() {
			record.PID = 0
		}
		status.Processes = append(status.Processes, ProcessStatus{one.Name, record.PID, record.Since, record.Restarts, record.LastExit})
	}
	status.Links = make([]LinkStatus, len(p.Links))
	var measuring sync.WaitGroup
	for index, link := range p.Links {
		measuring.Go(func() {
			median, least := measure(ctx, p.site(link.From), p.site(link.To))
			status.Links[index] = LinkStatus{
				From: link.From, To: link.To, RoundTripMS: 2 * link.LatencyMS, RateMbps: link.RateMbps, MeasuredMS: median, LeastMS: least,
			}
		})
	}
	measuring.Wait()
	return status, nil
}

// pings is how many round trips a link's median is of.
const pings = 21

var roundTrip = regexp.MustCompile(`time=([0-9.]+) ms`)

// measure is the median and the least round trip in milliseconds between two sites.
func measure(ctx context.Context, from, to *sitePlan) (median, least float64) {
	namespace, err := hostnet.OpenNamespace(from.Namespace)
	if err != nil {
		return math.NaN(), math.NaN()
	}
	defer namespace.Close()
	output, err := namespace.Run(exec.CommandContext(ctx, "ping", "-n", "-c", strconv.Itoa(pings), "-i", "0.02", "-W", "2", to.Control.Addr().String()))
	if err != nil {
		return math.NaN(), math.NaN()
	}
	return roundTrips(output)
}

// roundTrips are the median and the least of the answers which ping printed, in milliseconds.
func roundTrips(output []byte) (median, least float64) {
	var found []float64
	for _, answer := range roundTrip.FindAllSubmatch(output, -1) {
		if value, err := strconv.ParseFloat(string(answer[1]), 64); err == nil {
			found = append(found, value)
		}
	}
	if len(found) == 0 {
		return math.NaN(), math.NaN()
	}
	slices.Sort(found)
	middle := len(found) / 2
	if len(found)%2 == 0 {
		return (found[middle-1] + found[middle]) / 2, found[0]
	}
	return found[middle], found[0]
}

// Write prints the status as tables.
func (s *Status) Write(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintf(table, "laboratory %s\n\nPROCESS\tPID\tFOR\tRESTARTS\tLAST END\n", s.Laboratory)
	for _, p := range s.Processes {
		pid, since := "down", "-"
		if p.PID != 0 {
			pid, since = strconv.Itoa(p.PID), time.Since(p.Since).Round(time.Second).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", p.Name, pid, since, p.Restarts, p.LastExit)
	}
	fmt.Fprint(table, "\nLINK\tROUND TRIP\tMEDIAN\tLEAST\tRATE\n")
	for _, l := range s.Links {
		measured := "no answer\t-"
		if !math.IsNaN(l.MeasuredMS) {
			measured = fmt.Sprintf("%.2f ms\t%.2f ms", l.MeasuredMS, l.LeastMS)
		}
		fmt.Fprintf(table, "%s - %s\t%.2f ms\t%s\t%g Mbit/s\n", l.From, l.To, l.RoundTripMS, measured, l.RateMbps)
	}
	fmt.Fprint(table, "\nMACHINE (for lab exec)\n")
	for _, machine := range s.Machines {
		fmt.Fprintf(table, "%s\n", machine)
	}
	return table.Flush()
}
