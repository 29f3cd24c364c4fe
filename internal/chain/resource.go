package chain

import (
	"cmp"
	"time"
)

// Kind is a kind of resource, as the API spells it.
type Kind string

// The kinds that customers and operators apply, and those that are only observed.
const (
	KindSite       Kind = "site"
	KindLink       Kind = "link"
	KindNetwork    Kind = "network"
	KindCustomer   Kind = "customer"
	KindVnf        Kind = "vnf"
	KindDeployment Kind = "vnfdeployment"
	KindEdge       Kind = "edge"
	KindChain      Kind = "chain"
	KindInstance   Kind = "vnfinstance"
	KindRoute      Kind = "route"
	KindMove       Kind = "move"
)

// AppliedKinds lists the kinds that can be applied, each after those it refers to.
var AppliedKinds = []Kind{KindSite, KindLink, KindNetwork, KindCustomer, KindVnf, KindDeployment, KindEdge, KindChain}

// Key identifies a resource.
type Key struct {
	Kind     Kind
	Customer CustomerName
	Name     string
}

// String is "kind name" or "kind customer/name".
func (k Key) String() string { return string(k.Kind) + " " + k.Path() }

// Path is "name" or "customer/name".
func (k Key) Path() string {
	if k.Customer == "" {
		return k.Name
	}
	return string(k.Customer) + "/" + k.Name
}

// Compare orders keys by kind, customer and name.
func (k Key) Compare(other Key) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), cmp.Compare(k.Customer, other.Customer), cmp.Compare(k.Name, other.Name))
}

// Metadata is what the system knows about every resource.
type Metadata struct {
	UID string
	// Generation grows with every change of the specification.
	Generation uint64
	Created    time.Time
}

// Spec is what a resource of one kind is to be. Its checks report what can be told from the specification alone.
type Spec interface {
	Kind() Kind
	check(f *Findings)
}

// Resource is a name and what it stands for.
type Resource struct {
	Key      Key
	Metadata Metadata
	Spec     Spec
}

// Check reports what is wrong with a resource by itself: its name, its owner and its specification.
func (r Resource) Check(f *Findings) {
	if problem := CheckName(r.Key.Name); problem != "" {
		f.Add("metadata.name", problem, NameFix)
	}
	switch {
	case r.Key.Customer != "":
		if r.Key.Kind != KindChain && r.Key.Kind != KindEdge {
			f.Add("metadata.customer", "a "+string(r.Key.Kind)+" has no owner", "remove the field")
		} else if problem := CheckName(string(r.Key.Customer)); problem != "" {
			f.Add("metadata.customer", problem, NameFix)
		}
	case r.Key.Kind == KindChain:
		f.Add("metadata.customer", "is missing", "name the customer that owns the chain")
	}
	r.Spec.check(f)
}
