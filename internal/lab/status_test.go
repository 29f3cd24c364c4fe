package lab

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestMedianOfRoundTrips(t *testing.T) {
	line := func(times ...string) (text string) {
		for _, one := range times {
			text += "64 bytes from 198.18.0.2: icmp_seq=1 ttl=64 time=" + one + " ms\n"
		}
		return text + "rtt min/avg/max/mdev = 0.1/2.2/9.9/1.0 ms\n"
	}
	for text, want := range map[string]float64{
		line("8.10", "8.05", "40"):         8.1, // one that was held up does not count
		line("8", "9", "7", "10"):          8.5,
		line():                             math.NaN(),
		strings.Repeat(line("0.5"), pings): 0.5,
	} {
		if got, _ := roundTrips([]byte(text)); got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
			t.Errorf("%v, want %v of %s", got, want, text)
		}
	}
}

func TestLeastRoundTrip(t *testing.T) {
	if _, least := roundTrips([]byte("time=8.10 ms\ntime=8.05 ms\ntime=40 ms\n")); least != 8.05 {
		t.Errorf("%v, want 8.05", least)
	}
}

// An interrupt while processes start is called so, not a process that does not run.
func TestInterruptWhileProcessesStart(t *testing.T) {
	s := stateOf(t.TempDir(), "tiny")
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.waitRunning(ctx, []process{{Name: "underlay"}}); !errors.Is(err, ErrInterrupted) {
		t.Errorf("got %v", err)
	}
}

// Whatever is behind a name, reading it ends.
func TestEndlessFileIsRefused(t *testing.T) {
	for name, read := range map[string]func(string) error{
		"ReadFile": func(path string) error { _, err := ReadFile(path); return err },
		"Up": func(path string) error {
			_, err := Up(context.Background(), t.TempDir(), path, NewProgress(func(string) {}), nil)
			return err
		},
	} {
		if err := read("/dev/zero"); err == nil || !strings.Contains(err.Error(), "/dev/zero has more than 4194304 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSitesOfALaboratory(t *testing.T) {
	_, root := supervised(t, process{})
	if sites, err := Sites(root, ""); err != nil || strings.Join(sites, " ") != "a b" {
		t.Errorf("%v, %v", sites, err)
	}
	if _, err := Sites(root, "other"); !errors.Is(err, ErrNoLaboratory) {
		t.Errorf("another laboratory: %v", err)
	}
}
