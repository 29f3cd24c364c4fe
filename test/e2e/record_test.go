package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// publish writes a benchmark's record into the file that SWITCHBOARD_RECORD names; without one it is only shown.
func publish(b *testing.B, record any) {
	b.Helper()
	text, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%s", text)
	if file := os.Getenv("SWITCHBOARD_RECORD"); file != "" {
		if err := os.WriteFile(file, append(text, '\n'), 0o644); err != nil {
			b.Fatal(err)
		}
	}
}

// rounded keeps what the measurement can tell.
func rounded(value float64) float64 { return math.Round(value*100) / 100 }

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
