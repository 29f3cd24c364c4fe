package instance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// record is what an instance was given for a place. It is durable before the interfaces are made, so that a place keeps
// its addresses whatever dies.
type record struct {
	Instance string    `json:"instance"`
	Place    vnf.Place `json:"place"`
	// Index names interfaces, routing tables, connection tracking zone and VLAN tags; unique in the instance, from 1.
	Index int `json:"index"`
	// IngressMAC and EgressMAC are of gateway instances.
	IngressMAC string `json:"ingressMac"`
	EgressMAC  string `json:"egressMac"`
	// Source is the address that a NAT puts in.
	Source netip.Addr `json:"source"`
	// Options are the chain's for the VNF, as JSON.
	Options json.RawMessage `json:"options,omitempty"`
	// Customer and Chain say whose place it is.
	Customer string `json:"customer,omitempty"`
	Chain    string `json:"chain,omitempty"`
	// Vnfs and Paths are of label-aware instances: how many VNFs the path has, and its service path identifiers.
	Vnfs  uint32    `json:"vnfs,omitempty"`
	Paths [2]uint32 `json:"paths,omitzero"`
}

// attachmentID is unique at the site.
func (r *record) attachmentID() string {
	return fmt.Sprintf("%s/%d/%d/%d", r.Instance, r.Place.ChainLabel, r.Place.EgressLabel, r.Place.Stage)
}

func (r *record) key() string {
	return bus.Key(r.Instance, strconv.FormatUint(uint64(r.Place.ChainLabel), 10),
		strconv.FormatUint(uint64(r.Place.EgressLabel), 10), strconv.FormatUint(uint64(r.Place.Stage), 10))
}

// records are all of a site. Safe for concurrent use; a record once made does not change.
type records struct {
	site  string
	store Store

	mu    sync.Mutex
	byKey map[string]*record
	made  map[string]note // of instances that have a namespace, or had one
}

func openRecords(ctx context.Context, site string, store Store) (*records, error) {
	entries, err := store.List(ctx, "")
	if err != nil {
		return nil, fmt.Errorf("read records of instances: %w", err)
	}
	r := &records{site: site, store: store, byKey: map[string]*record{}, made: map[string]note{}}
	for _, e := range entries {
		if tokens, err := bus.SplitKey(e.Key); err == nil && len(tokens) == 1 {
			n := note{}
			if err := json.Unmarshal(e.Value, &n); err != nil {
				return nil, fmt.Errorf("record of instance %q is damaged; remove the key to forget it", e.Key)
			}
			r.made[tokens[0]] = n
			continue
		}
		one := &record{}
		if err := json.Unmarshal(e.Value, one); err != nil || one.key() != e.Key || one.Index < 1 {
			return nil, fmt.Errorf("record of instance %q is damaged; remove the key to forget it", e.Key)
		}
		r.byKey[e.Key] = one
	}
	return r, nil
}

// of lists an instance's records by index.
func (r *records) of(instance string) []*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ofInstance(instance)
}

// all lists every record, by instance and index.
func (r *records) all() []*record {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := slices.Collect(maps.Values(r.byKey))
	slices.SortFunc(found, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Index, b.Index))
	})
	return found
}

func (r *records) ofInstance(instance string) []*record {
	var found []*record
	for _, one := range r.byKey {
		if one.Instance == instance {
			found = append(found, one)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.Index, b.Index) })
	return found
}

func (r *records) has(instance string) bool { return len(r.of(instance)) > 0 }

// instances names all that have a record.
func (r *records) instances() []string {
	r.mu.Lock()
	names := slices.Collect(maps.Keys(r.made))
	r.mu.Unlock()
	for _, one := range r.all() {
		names = append(names, one.Instance)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// obtain finds an instance's record for a place, or makes it with the lowest free index.
func (r *records) obtain(ctx context.Context, instance string, p Placement, d *driver, addresses pool) (*record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := &record{Instance: instance, Place: p.Place, Customer: p.Customer, Chain: p.Chain}
	if known := r.byKey[one.key()]; known != nil {
		return known, nil
	}
	one.Index = 1
	for _, other := range r.ofInstance(instance) { // in order of index
		if other.Index == one.Index {
			one.Index++
		}
	}
	limit := 65535 // zones have 16 bits
	if d.kind == vnf.Transparent || d.kind == vnf.Native {
		limit = largestTransparentIndex
	}
	if one.Index > limit {
		return nil, fmt.Errorf("instance %s serves %d places, it can serve no more", instance, limit)
	}
	if d.kind == vnf.Gateway {
		one.IngressMAC, one.EgressMAC = r.address(one, "ingress").String(), r.address(one, "egress").String()
	}
	if d.translates {
		var err error
		if one.Source, err = addresses.free(r.sources()); err != nil {
			return nil, err
		}
	}
	if err := r.keep(ctx, one); err != nil {
		return nil, err
	}
	return one, nil
}

func (r *records) keep(ctx context.Context, one *record) error {
	value, err := json.Marshal(one)
	if err == nil {
		_, err = r.store.Put(ctx, one.key(), value)
	}
	if err != nil {
		return fmt.Errorf("keep record: %w", err)
	}
	r.byKey[one.key()] = one
	return nil
}

// keepPlacement makes a placement's options, and what else an instance is told of it, durable where they changed.
func (r *records) keepPlacement(ctx context.Context, one *record, p Placement, d *driver) error {
	changed := *one
	changed.Customer, changed.Chain = p.Customer, p.Chain
	if d.kind.LabelAware() {
		changed.Vnfs, changed.Paths = p.Vnfs, p.Paths
	}
	told := changed.Customer == one.Customer && changed.Chain == one.Chain && changed.Vnfs == one.Vnfs && changed.Paths == one.Paths
	if told && (proto.Equal(p.Options, one.options()) || p.Options == nil && one.Options == nil) {
		return nil
	}
	if p.Options != nil {
		text, err := protojson.Marshal(p.Options)
		if err != nil {
			return err
		}
		changed.Options = text
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keep(ctx, &changed)
}

// address makes a locally administered unicast MAC address.
func (r *records) address(one *record, side string) net.HardwareAddr {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%s", r.site, one.attachmentID(), side)
	sum := h.Sum64()
	mac := net.HardwareAddr{0x02, 0, 0, 0, 0, 0}
	for i := 1; i < len(mac); i++ {
		mac[i] = byte(sum >> (8 * i))
	}
	return mac
}

func (r *records) sources() map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	for _, one := range r.byKey {
		used[one.Source] = true
	}
	return used
}

func (r *records) drop(ctx context.Context, one *record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.store.Delete(ctx, one.key()); err != nil {
		return err
	}
	delete(r.byKey, one.key())
	return nil
}

// forget drops all that is known of an instance.
func (r *records) forget(ctx context.Context, instance string) error {
	for _, one := range r.of(instance) {
		if err := r.drop(ctx, one); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.store.Delete(ctx, bus.Key(instance)); err != nil {
		return err
	}
	delete(r.made, instance)
	return nil
}
