package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// losses are everything that says why a packet was lost or late, by name: the drop counters of the forwarders, of the
// underlay and of the kernel, and how long the processes on the packets' way waited for a processor, in milliseconds.
type losses map[string]uint64

// losses reads what was lost so far. Forwarders tell their counters once a second.
func (l *laboratory) losses(t testing.TB) losses {
	t.Helper()
	found := losses{}
	for _, resource := range l.list(t, "site", "", "") {
		for _, forwarder := range resource.GetSite().GetStatus().GetForwarders() {
			for name, count := range forwarder.GetDrops() {
				found[resource.GetMetadata().GetName()+" "+name] += count
			}
		}
	}
	for name, process := range l.running(onTheWay...) {
		for _, waited := range process.delays() {
			found[name+" waited for a processor, ms"] += uint64(waited.Milliseconds())
		}
	}
	l.underlayLosses(t, found)
	found["kernel, backlog of a processor full"] = backlogDrops(t)
	return found
}

// underlayLosses adds the counters of the delay line.
func (l *laboratory) underlayLosses(t testing.TB, to losses) {
	t.Helper()
	var status map[string]any
	text, err := os.ReadFile(filepath.Join(l.root, l.name, "underlay-status.json"))
	if err == nil {
		err = json.Unmarshal(text, &status)
	}
	if err != nil {
		t.Fatal(err)
	}
	add := func(prefix string, counters map[string]any) {
		for name, value := range counters {
			if count, ok := value.(float64); ok && (strings.HasPrefix(name, "dropped") || strings.HasSuffix(name, "failures")) {
				to[prefix+name] = uint64(count)
			}
		}
	}
	add("underlay ", status)
	lines, _ := status["lines"].([]any)
	for _, each := range lines {
		if line, ok := each.(map[string]any); ok {
			add(fmt.Sprintf("underlay %v to %v ", line["from"], line["to"]), line)
		}
	}
}

// backlogDrops are packets of the whole machine that came to a processor faster than it could take them.
func backlogDrops(t testing.TB) (sum uint64) {
	t.Helper()
	text, err := os.ReadFile("/proc/net/softnet_stat")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		count, err := strconv.ParseUint(strings.Fields(line)[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}

// since are the losses that others have not, one a line.
func (now losses) since(before losses) string {
	var lines []string
	for name, count := range now {
		if count > before[name] {
			lines = append(lines, fmt.Sprintf("  %s: %d", name, count-before[name]))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
