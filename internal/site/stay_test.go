package site

import (
	"testing"

	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
)

func TestStayedIsTheBoundThatAShareOfPacketsIsBelow(t *testing.T) {
	histogram := func(buckets ...*rules.LatencyBucket) *rules.LatencyHistogram {
		return &rules.LatencyHistogram{Buckets: buckets}
	}
	bucket := func(below, packets uint64) *rules.LatencyBucket {
		return &rules.LatencyBucket{BelowNs: below, Packets: packets}
	}
	for _, c := range []struct {
		name      string
		latencies []*rules.LatencyHistogram
		share     float64
		want      float64
	}{
		{"no worker", nil, 0.5, 0},
		{"no packet", []*rules.LatencyHistogram{histogram()}, 0.99, 0},
		{"half", []*rules.LatencyHistogram{histogram(bucket(1024, 50), bucket(2048, 50))}, 0.5, 1.024},
		{"most", []*rules.LatencyHistogram{histogram(bucket(1024, 50), bucket(2048, 49), bucket(8192, 1))}, 0.99, 2.048},
		{"two workers", []*rules.LatencyHistogram{histogram(bucket(1024, 1)), histogram(bucket(2048, 99))}, 0.5, 2.048},
		{"longer than any bound", []*rules.LatencyHistogram{histogram(bucket(1024, 1), bucket(0, 99))}, 0.99, 1.024},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := stayed(&rules.Status{Latencies: c.latencies}, c.share); got != c.want {
				t.Errorf("stayed(%v) = %v, want %v", c.share, got, c.want)
			}
		})
	}
}
