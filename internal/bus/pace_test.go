package bus

import (
	"fmt"
	"testing"
	"time"
)

// TestPaceKeepsQueuesShort sends through simulated bottlenecks for twenty seconds, and looks at the second half: what
// waits in the network, and how much of the path is used.
func TestPaceKeepsQueuesShort(t *testing.T) {
	for _, bytesPerSecond := range []int{250_000, 2_500_000, 12_500_000} {
		for _, rtt := range []time.Duration{5 * time.Millisecond, 60 * time.Millisecond, 200 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d B/s, %v", bytesPerSecond, rtt), func(t *testing.T) {
				worst, used := simulatePace(bytesPerSecond, rtt)
				if worst > 150*time.Millisecond {
					t.Errorf("%v waited in the network", worst)
				}
				if used < 0.85 {
					t.Errorf("%.0f %% of the path was used", used*100)
				}
			})
		}
	}
}

func simulatePace(bytesPerSecond int, rtt time.Duration) (worst time.Duration, used float64) {
	type answer struct {
		number uint64
		at     time.Time
	}
	begin := time.Unix(0, 0)
	now, free := begin, begin // free: when the bottleneck has sent all it was given
	p := newPace(4 << 20)
	var answers []answer
	delivered := 0
	for now.Before(begin.Add(20 * time.Second)) {
		if size := p.batch(); size > 0 {
			number := p.sent(size, now)
			if free.Before(now) {
				free = now
			}
			free = free.Add(time.Duration(size) * time.Second / time.Duration(bytesPerSecond))
			if now.Sub(begin) > 10*time.Second {
				worst = max(worst, free.Sub(now))
				delivered += size
			}
			answers = append(answers, answer{number, free.Add(rtt)})
			continue
		}
		now = answers[0].at
		p.credit(answers[0].number, now)
		answers = answers[1:]
	}
	return worst, float64(delivered) / 10 / float64(bytesPerSecond)
}

func TestPaceGivesSilentPeersNothingMore(t *testing.T) {
	p, now := newPace(4<<20), time.Unix(0, 0)
	sent := 0
	for p.batch() > 0 {
		size := p.batch()
		p.sent(size, now)
		sent += size
	}
	expect(t, "bytes without a credit", sent, paceStart)
	expect(t, "age of the oldest", p.oldest(now.Add(time.Minute)), time.Minute)
	p.credit(99, now.Add(time.Minute))
	expect(t, "age of nothing", p.oldest(now.Add(time.Hour)), 0)
	if p.batch() == 0 {
		t.Error("nothing may be sent though all has arrived")
	}
}
