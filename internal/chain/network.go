package chain

import "fmt"

// NetworkSpec is what holds for the whole underlay.
type NetworkSpec struct {
	// MaximumLinkUtilization is the share of a link's bandwidth that new routes may bring it to, background included.
	MaximumLinkUtilization float64
}

// The range of a largest link utilisation is the optimiser's (crates/te/src/model/ranges.rs).
const (
	leastUtilization = 1e-6
	mostUtilization  = 1e6
)

// Kind is KindNetwork.
func (NetworkSpec) Kind() Kind { return KindNetwork }

func (n NetworkSpec) check(f *Findings) {
	if u := n.MaximumLinkUtilization; !finite(u) || u < leastUtilization || u > mostUtilization {
		f.Add("spec.maxLinkUtilization", fmt.Sprintf("%v is no share of a bandwidth that links can be used to", u),
			"write a number above 0, such as 0.8, or leave it out for 1")
	}
}

// CustomerSpec is what holds for all chains of a customer.
type CustomerSpec struct {
	// Priority of the chains that state none.
	Priority uint32
}

// Kind is KindCustomer.
func (CustomerSpec) Kind() Kind { return KindCustomer }

func (c CustomerSpec) check(f *Findings) {
	if c.Priority == 0 {
		f.Add("spec.priority", "is missing", "write a whole number from 1; higher ones keep their traffic when capacity is short")
	}
}

// defaultPriority is that of chains where neither they nor their customer state one.
const defaultPriority = 1

// Network finds the settings of the whole underlay; false where none were applied and defaults hold.
func (w World) Network() (NetworkSpec, bool) {
	for _, key := range w.Keys(KindNetwork) {
		return w[key].Spec.(NetworkSpec), true
	}
	return NetworkSpec{}, false
}

// Priority is a chain's own, else its customer's, else 1.
func (w World) Priority(key Key) uint32 {
	if c, ok := w[key].Spec.(ChainSpec); ok && c.Priority > 0 {
		return c.Priority
	}
	if c, ok := w[Key{Kind: KindCustomer, Name: string(key.Customer)}].Spec.(CustomerSpec); ok {
		return c.Priority
	}
	return defaultPriority
}

// checkOnlyNetwork refuses a second one: of two it could not be told which holds.
func (w World) checkOnlyNetwork(key Key, f *Findings) {
	for _, other := range w.Keys(KindNetwork) {
		if other != key {
			f.Add("metadata.name", fmt.Sprintf("%s is there already, and one holds for the whole underlay", other),
				"change that one, or delete it first")
			return
		}
	}
}
