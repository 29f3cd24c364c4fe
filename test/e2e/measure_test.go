package e2e

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// roundTrip is the median of ten groups of pings, in milliseconds.
func (l *laboratory) roundTrip(t testing.TB, machine, address string) float64 {
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
func (l *laboratory) leastRoundTrip(t testing.TB, machine, address string) float64 {
	t.Helper()
	least := math.Inf(1)
	for range 10 {
		shortest, _ := l.pings(t, machine, address)
		least = min(least, shortest)
	}
	return least
}

// pings are the shortest and the average of ten, in milliseconds.
func (l *laboratory) pings(t testing.TB, machine, address string) (shortest, average float64) {
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
func (l *laboratory) throughput(t testing.TB, from, to, address string) float64 {
	t.Helper()
	var rates []float64
	for range 5 {
		rates = append(rates, l.transfer(t, from, to, address))
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

// transfer is what TCP carries in three seconds, in Mbit/s.
func (l *laboratory) transfer(t testing.TB, from, to, address string) float64 {
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
