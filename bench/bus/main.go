// Command bus measures the message bus: against full-mesh broadcast over an emulated wide area, as in figure 9 of the
// Switchboard paper, and what it costs by itself. Everything runs on loopback and in a temporary directory.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	output := flag.String("o", "", "file for the results as JSON")
	runs := flag.Int("runs", 3, "runs of each comparison; the median counts")
	only := flag.String("only", "", "run one part only: local, wide, recovery, idle or figure9")
	site := flag.String("site", "", "internal: run one site of the idle measurement, from this configuration file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	if *site != "" {
		err = idleSite(ctx, *site)
	} else {
		err = measure(ctx, *output, *only, *runs)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/bus:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, output, only string, runs int) error {
	parts := []struct {
		name string
		run  func(context.Context, *report) error
	}{
		{"local", localCosts}, {"wide", wideAreaCosts}, {"recovery", recovery}, {"idle", idle},
		{"figure9", func(ctx context.Context, r *report) error { return figure9(ctx, r, runs) }},
	}
	r := newReport()
	fmt.Println(r.Machine)
	for _, part := range parts {
		if only != "" && only != part.name {
			continue
		}
		if err := part.run(ctx, r); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if output == "" {
		return nil
	}
	return r.write(output)
}

// figure9 compares at rates below and above what the publisher's uplink carries as one copy per subscriber.
func figure9(ctx context.Context, r *report, runs int) error {
	for _, rate := range []float64{10, 40, 200} {
		var ours, theirs []outcome
		for range runs {
			a, err := overBus(ctx, rate)
			if err != nil {
				return err
			}
			b, err := overBroadcast(rate)
			if err != nil {
				return err
			}
			ours, theirs = append(ours, a), append(theirs, b)
		}
		const peer = "full-mesh broadcast"
		of := func(all []outcome, get func(outcome) float64) float64 {
			var values []float64
			for _, o := range all {
				values = append(values, get(o))
			}
			return median(values)
		}
		compare := func(what, unit string, smaller bool, get func(outcome) float64) {
			name := fmt.Sprintf("figure 9, %.0f updates/s to %d sites x %d: %s", rate, subscribingSites, subscribersPerSite, what)
			r.compare(name, of(ours, get), unit, peer, of(theirs, get), smaller)
		}
		compare("latency p50", "ms", true, func(o outcome) float64 { return o.p50 })
		compare("latency p99", "ms", true, func(o outcome) float64 { return o.p99 })
		compare("delivered to each subscriber", "1/s", false, func(o outcome) float64 { return o.delivered })
		compare("wide-area bytes per update", "B", true, func(o outcome) float64 { return o.bytes })
	}
	return nil
}
