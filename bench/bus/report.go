package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is the file that the benchmark writes.
type report struct {
	Bench   string   `json:"bench"`
	Commit  string   `json:"commit"`
	Machine string   `json:"machine"`
	Figures []figure `json:"figures"`
}

// figure is one result; with Peer, compared with another system on the same machine in the same run.
type figure struct {
	Name      string   `json:"name"`
	Value     float64  `json:"value"`
	Unit      string   `json:"unit"`
	Peer      string   `json:"peer,omitempty"`
	PeerValue *float64 `json:"peer_value,omitempty"`
	// Ratio is how many times better Value is than PeerValue.
	Ratio *float64 `json:"ratio,omitempty"`
}

func newReport() *report {
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &report{Bench: "bus", Commit: strings.TrimSpace(string(commit)), Machine: machine()}
}

// machine describes what the figures were taken on, and how busy it was.
func machine() string {
	model := "unknown processor"
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if name, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d processors, load average %s at the start", model, runtime.NumCPU(), loadAverage())
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Fields(string(text))[0]
}

// add notes a figure.
func (r *report) add(name string, value float64, unit string) {
	r.Figures = append(r.Figures, figure{Name: name, Value: value, Unit: unit})
	fmt.Printf("%-62s %12.3f %s\n", name, value, unit)
}

// compare notes a figure and its peer's; the ratio says how many times better ours is.
func (r *report) compare(name string, value float64, unit, peer string, peerValue float64, smallerIsBetter bool) {
	ratio := value / peerValue
	if smallerIsBetter {
		ratio = peerValue / value
	}
	r.Figures = append(r.Figures, figure{name, value, unit, peer, &peerValue, &ratio})
	fmt.Printf("%-62s %12.3f %s, %s %.3f, %.1f times better\n", name, value, unit, peer, peerValue, ratio)
}

func (r *report) write(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// median and percentile are of values that they sort; 0 of none.
func median(values []float64) float64 { return percentile(values, 50) }

func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[min(len(values)-1, int(float64(len(values))*p/100))]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
