package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tracked is one entry of a connection-tracking table.
type tracked struct {
	source, destination         string
	sourcePort, destinationPort uint16
	// answered says that packets of both directions were seen.
	answered bool
}

var trackedPattern = regexp.MustCompile(`src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)`)

// conntrack lists the TCP connections to a port that a VNF instance has seen.
func (l *laboratory) conntrack(t testing.TB, machine string, port uint16) []tracked {
	t.Helper()
	output := l.mustRun(t, machine, "conntrack", "-L", "-p", "tcp", "--orig-port-dst", strconv.Itoa(int(port)))
	var entries []tracked
	for _, line := range strings.Split(output, "\n") {
		found := trackedPattern.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		from, _ := strconv.Atoi(found[3])
		to, _ := strconv.Atoi(found[4])
		entries = append(entries, tracked{
			source: found[1], destination: found[2], sourcePort: uint16(from), destinationPort: uint16(to),
			answered: !strings.Contains(line, "[UNREPLIED]"),
		})
	}
	return entries
}
