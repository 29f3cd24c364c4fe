package chain

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestWeightsKeepProportions(t *testing.T) {
	for range 1000 {
		shares := make([]float64, 1+rand.IntN(12))
		sum := 0.0
		for i := range shares {
			if rand.IntN(4) > 0 {
				shares[i] = math.Pow(10, -4*rand.Float64())
			}
			sum += shares[i]
		}
		for i, w := range Weights(shares) {
			want := 0.0
			if shares[i] > 0 {
				want = max(1, shares[i]/sum*WeightSum)
			}
			if math.Abs(float64(w)-want) > 0.5 || w > 65535 {
				t.Fatalf("share %v of %v: weight %d, want %.1f", shares[i], shares, w, want)
			}
		}
	}
}

func TestWeightsOfNothingAreNothing(t *testing.T) {
	for _, shares := range [][]float64{nil, {0}, {0, 0}, {-1, 0}} {
		if w := Weights(shares); slices.Max(append(w, 0)) != 0 {
			t.Errorf("shares %v: weights %v", shares, w)
		}
	}
	if got := Weights([]float64{1e-300, 1}); got[0] != 1 {
		t.Errorf("the smallest share has weight %d, want 1", got[0])
	}
}

func TestSmallestWeights(t *testing.T) {
	for _, c := range []struct{ given, want []uint32 }{
		{[]uint32{100}, []uint32{1}},
		{[]uint32{100, 100}, []uint32{1, 1}},
		{[]uint32{100, 50}, []uint32{2, 1}},
		{[]uint32{100, 0, 25}, []uint32{4, 0, 1}},
		{[]uint32{65535, 1}, []uint32{8, 1}},
		{[]uint32{0, 0}, []uint32{0, 0}},
		{nil, []uint32{}},
	} {
		if got := SmallestWeights(c.given); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.given, got, c.want)
		}
	}
}
