package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/bus/emulated"
)

// The set-up of the paper's figure 9, as far as it is given: one publisher, subscribers at several sites, several at
// each, and wide-area delays. The publisher's site sends over a pipe of a fixed rate.
const (
	subscribingSites   = 9
	subscribersPerSite = 10
	updateBytes        = 1000
	uplinkBitsPerSec   = 20e6
	uplinkQueue        = 100 * time.Millisecond // of bytes, in its router
	runTime            = 10 * time.Second
	drainTime          = 4 * time.Second // after the last update, for what is still on its way
)

// siteDelay is the one-way delay to a site: 20 to 40 ms.
func siteDelay(i int) time.Duration {
	return 20*time.Millisecond + time.Duration(i)*20*time.Millisecond/(subscribingSites-1)
}

// outcome is what subscribers saw of one run.
type outcome struct {
	p50, p99  float64 // ms from publication to a subscriber
	delivered float64 // updates per second and subscriber, during the run
	bytes     float64 // over the wide area, per update published
}

// observer collects what subscribers receive.
type observer struct {
	mu       sync.Mutex
	lags     []float64
	inTime   int
	deadline time.Time
}

func (o *observer) saw(update []byte) {
	now := time.Now()
	lag := now.Sub(time.Unix(0, int64(binary.BigEndian.Uint64(update))))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lags = append(o.lags, milliseconds(lag))
	if now.Before(o.deadline) {
		o.inTime++
	}
}

// outcome is what was seen, with the bytes that crossed while so many updates were published.
func (o *observer) outcome(crossed int64, updates int) outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return outcome{
		p50: percentile(o.lags, 50), p99: percentile(o.lags, 99),
		delivered: float64(o.inTime) / runTime.Seconds() / (subscribingSites * subscribersPerSite),
		bytes:     float64(crossed) / float64(updates),
	}
}

// publishAt is publishFor the run's time, and the time that the last updates may take.
func publishAt(rate float64, publish func(i int, update []byte) error) (int, error) {
	n, err := publishFor(runTime, rate, publish)
	time.Sleep(drainTime)
	return n, err
}

// publishFor calls publish at a steady rate, with an update that bears the time, and returns how often.
func publishFor(duration time.Duration, rate float64, publish func(i int, update []byte) error) (int, error) {
	source := rand.NewChaCha8([32]byte{1})
	period := time.Duration(float64(time.Second) / rate)
	begin := time.Now()
	n := 0
	for ; time.Since(begin) < duration; n++ {
		time.Sleep(time.Until(begin.Add(time.Duration(n) * period)))
		update := make([]byte, updateBytes)
		_, _ = source.Read(update) // never fails
		binary.BigEndian.PutUint64(update, uint64(time.Now().UnixNano()))
		if err := publish(n, update); err != nil {
			return n, err
		}
	}
	return n, nil
}

// overBus runs the set-up over the bus.
func overBus(ctx context.Context, rate float64) (outcome, error) {
	p, err := newPlatform()
	if err != nil {
		return outcome{}, err
	}
	defer p.close()
	config, err := p.configuration("publisher")
	if err != nil {
		return outcome{}, err
	}
	server, err := p.start(ctx, config)
	if err != nil {
		return outcome{}, err
	}
	publisher, err := p.agent(ctx, server, "publisher")
	if err != nil {
		return outcome{}, err
	}
	uplink := emulated.NewPipe(uplinkBitsPerSec, uplinkQueue)
	o := &observer{}
	var paths []*emulated.Path
	for i := range subscribingSites {
		path, err := p.path(config.Listen, siteDelay(i), uplink)
		if err != nil {
			return outcome{}, err
		}
		paths = append(paths, path)
		if err := p.subscribeSite(ctx, fmt.Sprintf("site%d", i), path.Address(), o); err != nil {
			return outcome{}, err
		}
	}
	before := crossed(paths)
	o.deadline = time.Now().Add(runTime)
	n, err := publishAt(rate, func(i int, update []byte) error {
		_, err := publisher.Published().Put(ctx, bus.Key("c1", "e3", "vnf_O", "forwarders", fmt.Sprint(i%1000)), update)
		return err
	})
	if err != nil {
		return outcome{}, err
	}
	return o.outcome(crossed(paths)-before, n), nil
}

// subscribeSite starts a site that dials the publisher, with its subscribers.
func (p *platform) subscribeSite(ctx context.Context, name, publisher string, o *observer) error {
	config, err := p.configuration(name, bus.Peer{Site: "publisher", Address: publisher, Dial: bus.DialAlways})
	if err != nil {
		return err
	}
	config.Listen = ""
	server, err := p.start(ctx, config)
	if err != nil {
		return err
	}
	for i := range subscribersPerSite {
		c, err := p.agent(ctx, server, fmt.Sprintf("agent%d", i))
		if err != nil {
			return err
		}
		s, err := c.Subscribe(ctx, "publisher", bus.Key("c1", "e3", "vnf_O", "forwarders"))
		if err != nil {
			return err
		}
		for e := range s.Events() {
			if e.Kind == bus.Synchronised {
				break
			}
		}
		go func() {
			for e := range s.Events() {
				if e.Kind == bus.Put {
					o.saw(e.Value)
				}
			}
		}()
	}
	return nil
}

func crossed(paths []*emulated.Path) int64 {
	sum := int64(0)
	for _, p := range paths {
		sum += p.BytesBack.Load()
	}
	return sum
}
