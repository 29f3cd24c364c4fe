package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/bus/emulated"
)

const costSamples = 300

// localCosts measures one site by itself.
func localCosts(ctx context.Context, r *report) error {
	p, err := newPlatform()
	if err != nil {
		return err
	}
	defer p.close()
	config, err := p.configuration("site")
	if err != nil {
		return err
	}
	began := time.Now()
	server, err := p.start(ctx, config)
	if err != nil {
		return err
	}
	r.add("first start of a site's server", milliseconds(time.Since(began)), "ms")
	c, err := p.agent(ctx, server, "agent")
	if err != nil {
		return err
	}
	events, err := c.Published().Watch(ctx, "k")
	if err != nil {
		return err
	}
	<-events // Synchronised
	var puts, watches, requests []float64
	for range costSamples {
		value := binary.BigEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		began := time.Now()
		if _, err := c.Published().Put(ctx, "k", value); err != nil {
			return err
		}
		puts = append(puts, milliseconds(time.Since(began)))
		<-events
		watches = append(watches, milliseconds(time.Since(began)))
	}
	if err := c.Serve("echo", echo); err != nil {
		return err
	}
	for range costSamples {
		began := time.Now()
		if _, err := c.Request(ctx, "site", "echo", nil); err != nil {
			return err
		}
		requests = append(requests, milliseconds(time.Since(began)))
	}
	r.add("put on disk (synced), p50", median(puts), "ms")
	r.add("put to local watcher, p50", median(watches), "ms")
	r.add("request within a site, p50", median(requests), "ms")
	return nil
}

func echo(_ context.Context, request bus.Request) ([]byte, error) { return request.Payload, nil }

// twoSites is a publisher and a subscriber that dials it over a path.
func twoSites(ctx context.Context, p *platform, delay time.Duration, uplink *emulated.Pipe) (pub, sub *bus.Connection, path *emulated.Path, err error) {
	config, err := p.configuration("publisher")
	if err != nil {
		return nil, nil, nil, err
	}
	server, err := p.start(ctx, config)
	if err != nil {
		return nil, nil, nil, err
	}
	if pub, err = p.agent(ctx, server, "publisher"); err != nil {
		return nil, nil, nil, err
	}
	if path, err = p.path(config.Listen, delay, uplink); err != nil {
		return nil, nil, nil, err
	}
	if config, err = p.configuration("subscriber", bus.Peer{Site: "publisher", Address: path.Address(), Dial: bus.DialAlways}); err != nil {
		return nil, nil, nil, err
	}
	if server, err = p.start(ctx, config); err != nil {
		return nil, nil, nil, err
	}
	if sub, err = p.agent(ctx, server, "subscriber"); err != nil {
		return nil, nil, nil, err
	}
	return pub, sub, path, awaitLinks(ctx, sub, "publisher")
}

// wideAreaCosts measures what the bus adds to the path's round trip.
func wideAreaCosts(ctx context.Context, r *report) error {
	p, err := newPlatform()
	if err != nil {
		return err
	}
	defer p.close()
	const delay = 30 * time.Millisecond
	pub, sub, _, err := twoSites(ctx, p, delay, nil)
	if err != nil {
		return err
	}
	if err := pub.Serve("echo", echo); err != nil {
		return err
	}
	s, err := sub.Subscribe(ctx, "publisher", "k")
	if err != nil {
		return err
	}
	<-s.Events() // Synchronised
	var requests, updates []float64
	for range 100 {
		began := time.Now()
		if _, err := sub.Request(ctx, "publisher", "echo", nil); err != nil {
			return err
		}
		requests = append(requests, milliseconds(time.Since(began)-2*delay))
		began = time.Now()
		if _, err := pub.Published().Put(ctx, "k", nil); err != nil {
			return err
		}
		<-s.Events()
		updates = append(updates, milliseconds(time.Since(began)-delay))
	}
	r.add("request to another site, beyond the round trip, p50", median(requests), "ms")
	r.add("put to another site's watcher, beyond the one-way delay, p50", median(updates), "ms")
	return overload(ctx, r)
}

// overload publishes three times what the uplink carries, and looks how old values are when they arrive, and how long
// after the last change the subscriber has it.
func overload(ctx context.Context, r *report) error {
	p, err := newPlatform()
	if err != nil {
		return err
	}
	defer p.close()
	const delay, rate, keys = 30 * time.Millisecond, 2e6, 50
	pub, sub, _, err := twoSites(ctx, p, delay, emulated.NewPipe(rate, uplinkQueue))
	if err != nil {
		return err
	}
	s, err := sub.Subscribe(ctx, "publisher", "k")
	if err != nil {
		return err
	}
	<-s.Events() // Synchronised
	ended := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		_, err := publishFor(10*time.Second, 3*rate/8/updateBytes, func(i int, update []byte) error {
			_, err := pub.Published().Put(ctx, fmt.Sprintf("k.%d", i%keys), update)
			return err
		})
		at := time.Now()
		if err == nil {
			_, err = pub.Published().Put(ctx, "k.end", nil)
		}
		failed <- err
		ended <- at
	}()
	var ages []float64
	for e := range s.Events() {
		if e.Key == "k.end" {
			break
		}
		ages = append(ages, milliseconds(time.Since(time.Unix(0, int64(binary.BigEndian.Uint64(e.Value))))))
	}
	if err := <-failed; err != nil {
		return err
	}
	r.add("overload 3 times the uplink: age of values on arrival, p99", percentile(ages, 99), "ms")
	r.add("overload 3 times the uplink: last change arrives after", milliseconds(time.Since(<-ended)), "ms")
	return nil
}

// recovery measures how soon a cut site catches up, and how soon a dead agent is missed.
func recovery(ctx context.Context, r *report) error {
	p, err := newPlatform()
	if err != nil {
		return err
	}
	defer p.close()
	pub, sub, path, err := twoSites(ctx, p, 30*time.Millisecond, nil)
	if err != nil {
		return err
	}
	s, err := sub.Subscribe(ctx, "publisher", "k")
	if err != nil {
		return err
	}
	<-s.Events() // Synchronised
	var times []float64
	for i := range 5 {
		path.Cut()
		if _, err := pub.Published().Put(ctx, "k", []byte{byte(i)}); err != nil {
			return err
		}
		time.Sleep(time.Second)
		path.Heal()
		began := time.Now()
		<-s.Events()
		times = append(times, milliseconds(time.Since(began)))
	}
	r.add("site cut for 1 s catches up after the path heals, median of 5", median(times), "ms")
	return nil
}
