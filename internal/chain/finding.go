package chain

import (
	"fmt"
	"math"
)

// Finding is one mistake in a resource.
type Finding struct {
	// Resource is the index among those given.
	Resource int
	// Field is its path in the file, for example "spec.vnfs[1].options.rules[0].verdict".
	Field string
	// Description says what is wrong, Fix what to write instead.
	Description, Fix string
}

// String is one line for people.
func (v Finding) String() string { return fmt.Sprintf("%s: %s; %s", v.Field, v.Description, v.Fix) }

// Findings collects mistakes. Resource is the index that further ones are about.
type Findings struct {
	Resource int
	All      []Finding
}

// Add notes a mistake.
func (f *Findings) Add(field, description, fix string) {
	f.All = append(f.All, Finding{f.Resource, field, description, fix})
}

// atLeastZero checks a number.
func (f *Findings) atLeastZero(field string, value float64) {
	switch {
	case value > maximumNumber:
		f.tooLarge(field, value)
	case !(value >= 0):
		f.Add(field, fmt.Sprintf("%v is not a number of at least 0", value), "write a number from 0")
	}
}

// positive checks a number.
func (f *Findings) positive(field string, value float64) {
	switch {
	case value > maximumNumber:
		f.tooLarge(field, value)
	case !(value > 0):
		f.Add(field, fmt.Sprintf("%v is not above 0", value), "write a number above 0")
	}
}

func (f *Findings) tooLarge(field string, value float64) {
	f.Add(field, fmt.Sprintf("%v is too large", value), fmt.Sprintf("write a number up to %g", maximumNumber))
}

// maximumNumber bounds every quantity: sums of many stay exact enough to compare.
const maximumNumber = 1e12

func finite(value float64) bool {
	return !math.IsNaN(value) && math.Abs(value) <= maximumNumber
}
