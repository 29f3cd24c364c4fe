// Package chain is the domain: chains, routes and the arithmetic of stages, labels and weights. It imports the standard
// library only.
package chain

import "math"

// WeightSum is what the weights of one load-balancing choice add up to, about: enough to tell shares apart, and every
// single one fits sixteen bits.
const WeightSum = 60000

// Weights scales shares of one choice to integers: proportional, their sum about WeightSum, and at least 1 for every
// share above 0 (hierarchical load balancing, paper section 5.2).
func Weights(shares []float64) []uint32 {
	sum := 0.0
	for _, s := range shares {
		sum += max(s, 0)
	}
	weights := make([]uint32, len(shares))
	for i, s := range shares {
		if s > 0 && sum > 0 {
			weights[i] = uint32(max(1, math.Round(s/sum*WeightSum)))
		}
	}
	return weights
}

// SmallestWeights keeps the proportions of weights with the smallest integers that show them, none above 8: for targets
// that must be there, but may attract next to nothing beside weights that Weights made.
func SmallestWeights(weights []uint32) []uint32 {
	largest := uint32(0)
	for _, w := range weights {
		largest = max(largest, w)
	}
	small := make([]uint32, len(weights))
	divisor := uint32(0)
	for i, w := range weights {
		if w > 0 {
			small[i] = uint32(max(1, math.Round(float64(w)*8/float64(largest))))
			divisor = greatestCommonDivisor(divisor, small[i])
		}
	}
	for i := range small {
		if divisor > 1 {
			small[i] /= divisor
		}
	}
	return small
}

func greatestCommonDivisor(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
