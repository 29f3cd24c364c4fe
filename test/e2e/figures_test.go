package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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

// TestLaboratoryFigures measures the laboratory and writes the file that SWITCHBOARD_FIGURES names. `make bench-lab`
// runs it on a machine that does nothing else.
func TestLaboratoryFigures(t *testing.T) {
	file := os.Getenv("SWITCHBOARD_FIGURES")
	if file == "" {
		t.Skip("measures only when SWITCHBOARD_FIGURES names a file: make bench-lab")
	}
	l := useLaboratory(t)
	result := figures{Bench: "lab", Commit: commit(), Machine: machine()}
	add := func(name, unit string, value float64) {
		result.Figures = append(result.Figures, figure{Name: name, Unit: unit, Value: rounded(value)})
	}
	compare := func(name, unit string, value float64, peer string, peerValue float64) {
		result.Figures = append(result.Figures, figure{name, rounded(value), unit, peer, rounded(peerValue), rounded(value / peerValue)})
	}

	time.Sleep(5 * time.Second)
	cpu, memory := l.cost(t, 10*time.Second)
	compare("idle processor time, all processes", "% of one core", cpu, "limit", idleProcessorLimit)
	compare("idle resident memory, all processes", "MB", memory, "limit", idleMemoryLimit)
	if cpu > idleProcessorLimit || memory > idleMemoryLimit {
		t.Errorf("the idle laboratory costs %.1f %% of a core and %.0f MB", cpu, memory)
	}
	add("chain activation, median of "+strconv.Itoa(activations), "ms", l.activationTime(t))

	roamed := l.roams(t, 11)
	for _, step := range roamed.steps() {
		add("user at a new edge site: "+step.name+", median of 11", "ms", float64(step.took.Microseconds())/1000)
	}
	compare("user at a new edge site (SB10)", "ms after apply", float64(roamed.answered.Microseconds())/1000, "goal", float64(roamingGoal.Milliseconds()))
	if roamed.answered > roamingGoal {
		t.Errorf("a user at a new edge site has the first answer after %s", roamed.answered)
	}

	c := chainSpec{name: "figures", customer: "acme", edge: "office-lan", match: "{destinationPrefixes: [0.0.0.0/0]}", vnfs: []string{"west", "nat"}}
	l.activate(t, c)
	direct, through := l.roundTrip(t, "office", dcControl), l.roundTrip(t, "acme-host", www)
	compare("round trip through the chain", "ms", through, "office to dc without it", direct)
	without := l.throughput(t, "office", "dc", dcControl)
	with := l.throughput(t, "acme-host", "www", www)
	compare("TCP throughput through the chain, one connection", "Mbit/s", with, "office to dc without it", without)

	text, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", text)
}

// rounded keeps what the measurement can tell.
func rounded(value float64) float64 { return math.Round(value*100) / 100 }

// activationTime is the median time in milliseconds from apply to the first phase "active", as the system reports it.
func (l *laboratory) activationTime(t *testing.T) float64 {
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
func (l *laboratory) cost(t *testing.T, over time.Duration) (percent, megabytes float64) {
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

// roundTrip is the median of ten groups of pings, in milliseconds.
func (l *laboratory) roundTrip(t *testing.T, machine, address string) float64 {
	t.Helper()
	var averages []float64
	for range 10 {
		_, average := l.pings(t, machine, address)
		averages = append(averages, average)
	}
	slices.Sort(averages)
	return averages[len(averages)/2]
}

// leastRoundTrip is the shortest of a hundred pings, in milliseconds: what the line takes, without what a busy machine adds.
func (l *laboratory) leastRoundTrip(t *testing.T, machine, address string) float64 {
	t.Helper()
	least := math.Inf(1)
	for range 10 {
		shortest, _ := l.pings(t, machine, address)
		least = min(least, shortest)
	}
	return least
}

// pings are the shortest and the average of ten, in milliseconds.
func (l *laboratory) pings(t *testing.T, machine, address string) (shortest, average float64) {
	t.Helper()
	output := l.mustRun(t, machine, "ping", "-q", "-c", "10", "-i", "0.02", "-W", "10", address)
	_, summary, _ := strings.Cut(output, "= ")
	words := strings.Split(summary, "/")
	if len(words) < 4 {
		t.Fatalf("ping says %q", output)
	}
	for index, into := range []*float64{&shortest, &average} {
		value, err := strconv.ParseFloat(words[index], 64)
		if err != nil {
			t.Fatal(err)
		}
		*into = value
	}
	return shortest, average
}

// throughput is the median of five transfers, in Mbit/s.
func (l *laboratory) throughput(t *testing.T, from, to, address string) float64 {
	t.Helper()
	var rates []float64
	for range 5 {
		rates = append(rates, l.transfer(t, from, to, address))
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// transfer is what TCP carries in three seconds, in Mbit/s.
func (l *laboratory) transfer(t *testing.T, from, to, address string) float64 {
	t.Helper()
	l.mustRun(t, to, "iperf3", "--server", "--one-off", "--daemon", "--port", "5201")
	output := l.mustRun(t, from, "iperf3", "--client", address, "--time", "3", "--omit", "1", "--json")
	var report struct {
		End struct {
			Received struct {
				Rate float64 `json:"bits_per_second"`
			} `json:"sum_received"`
		} `json:"end"`
	}
	if err := json.Unmarshal([]byte(output), &report); err != nil {
		t.Fatalf("iperf3: %v in %s", err, output)
	}
	return report.End.Received.Rate / 1e6
}

func commit() string {
	output, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(output))
}

func machine() string {
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, found := strings.Cut(string(text), "model name"); found {
			line, _, _ := strings.Cut(rest, "\n")
			model = strings.TrimLeft(line, "\t: ")
		}
	}
	load, _ := os.ReadFile("/proc/loadavg")
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	average, _, _ := strings.Cut(string(load), " ")
	return fmt.Sprintf("%s, %d cores, Linux %s, load average %s", model, runtime.NumCPU(), filepath.Base(strings.TrimSpace(string(kernel))), average)
}
