package chain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

func TestServiceIndexIsItsOwnInverse(t *testing.T) {
	for vnfs := 0; vnfs <= MaximumVnfs; vnfs++ {
		for stage := Stage(1); int(stage) <= vnfs+1; stage++ {
			for _, reverse := range []bool{false, true} {
				index := ServiceIndex(stage, vnfs, reverse)
				if back, err := StageOf(index, vnfs, reverse); err != nil || back != stage || index == 0 {
					t.Fatalf("stage %d of %d VNFs, reverse %v: index %d, back %d, %v", stage, vnfs, reverse, index, back, err)
				}
			}
		}
	}
}

// RFC 8300: the index falls by one for each function passed, in either direction.
func TestServiceIndexFallsAlongTheChain(t *testing.T) {
	for _, c := range []struct {
		stage   Stage
		reverse bool
		want    uint8
	}{{1, false, 255}, {2, false, 254}, {3, false, 253}, {3, true, 255}, {2, true, 254}, {1, true, 253}} {
		if got := ServiceIndex(c.stage, 2, c.reverse); got != c.want {
			t.Errorf("stage %d of 2 VNFs, reverse %v: %d, want %d", c.stage, c.reverse, got, c.want)
		}
	}
	if _, err := StageOf(252, 2, false); err == nil {
		t.Error("index 252 of 2 VNFs names no stage")
	}
}

func TestChainLabelsGoRound(t *testing.T) {
	taken := map[Label]bool{FirstChainLabel: true}
	is := func(l Label) bool { return taken[l] }
	for last, want := range map[Label]Label{0: FirstChainLabel + 2, FirstChainLabel: FirstChainLabel + 2, LastChainLabel - 2: LastChainLabel,
		LastChainLabel: FirstChainLabel + 2} {
		if got, err := NextChainLabel(last, is); err != nil || got != want || !got.IsChain() || got.Reverse() != got+1 || got.Reverse().Forward() != got {
			t.Errorf("after %d: %d, %v; want %d", last, got, err, want)
		}
	}
	if _, err := NextChainLabel(0, func(Label) bool { return true }); err == nil {
		t.Error("no label is free, and one is given")
	}
	if got, err := NextSiteLabel(func(l Label) bool { return l < 20 }); err != nil || got != 20 || !got.IsSite() || got.IsChain() {
		t.Errorf("site label %d, %v", got, err)
	}
}

// randomRoutes are routes whose fractions sum to 1.
func randomRoutes(r *rand.Rand, vnfs int) []Route {
	name := func() SiteName { return SiteName(fmt.Sprintf("s%d", r.IntN(5))) }
	routes := make([]Route, 1+r.IntN(6))
	sum := 0.0
	for i := range routes {
		routes[i] = Route{Ingress: name(), Egress: "out", Fraction: 0.01 + r.Float64()}
		for range vnfs {
			routes[i].Sites = append(routes[i].Sites, name())
		}
		sum += routes[i].Fraction
	}
	for i := range routes {
		routes[i].Fraction /= sum
	}
	return routes
}

// What reaches a site leaves it, and following the crossings from the ingress meets the loads that routes cause.
func TestCrossingsConserveTraffic(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		vnfs := r.IntN(4)
		routes := randomRoutes(r, vnfs)
		crossings := Crossings(routes)
		out := map[Crossing]float64{}
		for c, share := range crossings {
			out[Crossing{Stage: c.Stage, From: c.From}] += share
		}
		for c, share := range out {
			if math.Abs(share-1) > 1e-9 {
				t.Fatalf("stage %d leaves %s with %v of what reached it", c.Stage, c.From, share)
			}
		}
		at := map[SiteName]float64{}
		for _, route := range routes {
			at[route.Ingress] += route.Fraction
		}
		for z := 1; z <= vnfs; z++ {
			next := map[SiteName]float64{}
			for c, share := range crossings {
				if int(c.Stage) == z {
					next[c.To] += at[c.From] * share
				}
			}
			loads := PositionLoads(routes, z, 0.5, Demand{Forward: 0.25, Reverse: 0.75})
			for site, load := range loads {
				if math.Abs(float64(load)-next[site]) > 1e-9 { // 0.5 per Mbit/s, received and sent, 1 Mbit/s
					t.Fatalf("position %d at %s: load %v, traffic %v", z, site, load, next[site])
				}
			}
			at = next
		}
	}
}

func TestLoadCountsTrafficReceivedAndSent(t *testing.T) {
	routes := []Route{{Ingress: "a", Sites: []SiteName{"b", "b"}, Egress: "c", Fraction: 0.5}, {Ingress: "a", Sites: []SiteName{"b", "c"}, Egress: "c", Fraction: 0.5}}
	loads := Loads(routes, []VnfName{"fw", "fw"}, func(VnfName) float64 { return 2 }, Demand{Forward: 10, Reverse: 5})
	// 2 load units x (15 received + 15 sent) for each pass: three half passes at b, one at c.
	if loads[Placement{"fw", "b"}] != 90 || loads[Placement{"fw", "c"}] != 30 {
		t.Errorf("loads %v, want 90 at b and 30 at c", loads)
	}
	larger := MaxLoads(loads, map[Placement]Load{{"fw", "b"}: 100, {"nat", "d"}: 1})
	if larger[Placement{"fw", "b"}] != 100 || larger[Placement{"fw", "c"}] != 30 || larger[Placement{"nat", "d"}] != 1 {
		t.Errorf("larger of two: %v", larger)
	}
}

func TestSameVnfs(t *testing.T) {
	a := []Use{{"fw", map[string]any{"default": "drop", "rules": []any{map[string]any{"verdict": "accept"}}}}, {"nat", nil}}
	same := []Use{{"fw", map[string]any{"rules": []any{map[string]any{"verdict": "accept"}}, "default": "drop"}}, {"nat", map[string]any{}}}
	if !SameVnfs(a, same) {
		t.Error("equal lists differ")
	}
	for name, b := range map[string][]Use{
		"shorter":       a[:1],
		"other order":   {a[1], a[0]},
		"other options": {{"fw", map[string]any{"default": "accept"}}, a[1]},
		"nested option": {{"fw", map[string]any{"default": "drop", "rules": []any{map[string]any{"verdict": "drop"}}}}, a[1]},
	} {
		if SameVnfs(a, b) {
			t.Errorf("%s: different lists are equal", name)
		}
	}
}
