package e2e

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// figure is one published number; peer is what it is compared with.
type figure struct {
	Name      string  `json:"name"`
	Value     float64 `json:"value"`
	Unit      string  `json:"unit"`
	Peer      string  `json:"peer,omitempty"`
	PeerValue float64 `json:"peer_value,omitempty"`
	Ratio     float64 `json:"ratio,omitempty"`
}

// figures is the file that they are published in.
type figures struct {
	Bench   string   `json:"bench"`
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Figures []figure `json:"figures"`
}

// activations is how many chains are timed.
const activations = 20

// What the idle laboratory may cost: per cent of one core, and MB.
const (
	idleProcessorLimit = 20
	idleMemoryLimit    = 1500
)

// BenchmarkLaboratory measures the example's laboratory, once: what it costs while nothing happens, how soon a chain is active, how soon a
// user at a new edge site is answered, and what a chain adds to a round trip and takes from TCP. `make bench-lab` records it.
func BenchmarkLaboratory(b *testing.B) {
	l := useLaboratory(b)
	for b.Loop() {
		result := figures{Bench: "lab", Commit: commit(), Machine: machine()}
		l.measureIdle(b, &result)
		result.add(b, figure{Name: "chain activation, median of " + strconv.Itoa(activations), Unit: "ms", Value: l.activationTime(b)})
		l.measureRoaming(b, &result)
		l.measureChain(b, &result)
		publish(b, result)
	}
}

// add takes a figure and shows it among the benchmark's metrics.
func (r *figures) add(b *testing.B, f figure) {
	f.Value, f.PeerValue = rounded(f.Value), rounded(f.PeerValue)
	if f.Peer != "" {
		f.Ratio = rounded(f.Value / f.PeerValue)
	}
	r.Figures = append(r.Figures, f)
	b.ReportMetric(f.Value, strings.NewReplacer(" ", "_", ",", "").Replace(f.Name)+"/"+strings.ReplaceAll(f.Unit, " ", "_"))
}

// measureIdle fails the benchmark where the laboratory costs too much.
func (l *laboratory) measureIdle(b *testing.B, result *figures) {
	time.Sleep(5 * time.Second)
	cpu, memory := l.cost(b, 10*time.Second)
	result.add(b, figure{Name: "idle processor time, all processes", Unit: "% of one core", Value: cpu, Peer: "limit", PeerValue: idleProcessorLimit})
	result.add(b, figure{Name: "idle resident memory, all processes", Unit: "MB", Value: memory, Peer: "limit", PeerValue: idleMemoryLimit})
	if cpu > idleProcessorLimit || memory > idleMemoryLimit {
		b.Errorf("the idle laboratory costs %.1f %% of a core and %.0f MB", cpu, memory)
	}
}

func (l *laboratory) measureRoaming(b *testing.B, result *figures) {
	const times = 11
	roamed := l.roams(b, times)
	for _, step := range roamed.steps() {
		result.add(b, figure{Name: fmt.Sprintf("user at a new edge site: %s, median of %d", step.name, times), Unit: "ms", Value: milliseconds(step.took)})
	}
	result.add(b, figure{Name: "user at a new edge site (SB10)", Unit: "ms after apply", Value: milliseconds(roamed.answered),
		Peer: "goal", PeerValue: milliseconds(roamingGoal)})
	if roamed.answered > roamingGoal {
		b.Errorf("a user at a new edge site has the first answer after %s", roamed.answered)
	}
}

func (l *laboratory) measureChain(b *testing.B, result *figures) {
	c := chainSpec{name: "figures", customer: "acme", edge: "office-lan", match: "{destinationPrefixes: [0.0.0.0/0]}", vnfs: []string{"west", "nat"}}
	l.activate(b, c)
	const peer = "office to dc without it"
	direct, through := l.roundTrip(b, "office", dcControl), l.roundTrip(b, "acme-host", www)
	result.add(b, figure{Name: "round trip through the chain", Unit: "ms", Value: through, Peer: peer, PeerValue: direct})
	without, with := l.throughput(b, "office", "dc", dcControl), l.throughput(b, "acme-host", "www", www)
	result.add(b, figure{Name: "TCP throughput through the chain, one connection", Unit: "Mbit/s", Value: with, Peer: peer, PeerValue: without})
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// activationTime is the median time in milliseconds from apply to the first phase "active", as the system reports it.
func (l *laboratory) activationTime(t testing.TB) float64 {
	t.Helper()
	var times []float64
	for index := range activations {
		c := chainSpec{name: fmt.Sprintf("timed-%d", index), customer: "acme", edge: "office-lan", match: fmt.Sprintf(`{destinationPrefixes: [198.51.100.0/24], protocols: [udp], destinationPorts: ["%d"]}`, 6000+index), vnfs: []string{"west", "nat"}}
		l.change(t, c)
		times = append(times, l.list(t, "chain", c.customer, c.name)[0].GetChain().GetStatus().GetActivationMs())
		l.remove(t, c)
	}
	slices.Sort(times)
	return times[len(times)/2]
}

// cost is the processor time, in per cent of one core, and the resident memory in MB of everything in the laboratory.
func (l *laboratory) cost(t testing.TB, over time.Duration) (percent, megabytes float64) {
	t.Helper()
	const ticksPerSecond = 100 // USER_HZ
	measure := func() (ticks, pages float64) {
		for _, process := range l.processes(t) {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", l.record(t, process).PID))
			if err != nil {
				t.Fatal(err)
			}
			fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
			for index, sum := range map[int]*float64{11: &ticks, 12: &ticks, 21: &pages} {
				value, err := strconv.ParseFloat(fields[index], 64)
				if err != nil {
					t.Fatal(err)
				}
				*sum += value
			}
		}
		return ticks, pages
	}
	before, _ := measure()
	time.Sleep(over)
	after, pages := measure()
	return (after - before) / ticksPerSecond / over.Seconds() * 100, pages * float64(os.Getpagesize()) / 1e6
}
