package instance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/chain"
	"github.com/switchboard-project/switchboard/internal/hostnet"
	"github.com/switchboard-project/switchboard/internal/vnf"
)

// instance is one running copy of a VNF.
type instance struct {
	name, namespace, forwarder string
	deployment                 Deployment
	weight                     uint32
	retired                    bool // the deployment wants fewer, or is gone
	log                        *slog.Logger

	state  api.VnfInstanceState
	reason string
	since  time.Time
	// lost is when its namespace was found gone; it is made anew after rebuildDelay, so that what happened can be seen.
	lost time.Time

	handle   *hostnet.Namespace // of its namespace; nil where there is none
	built    bool
	ports    map[string]string // the site's ends, by the link inside
	paired   map[int]bool      // by index
	mended   map[int]bool      // of these, those to be made anew
	visits   map[int][2]visit  // of a label-aware instance's places, forward and reverse, by index
	applied  string            // ruleset in force
	verified time.Time         // when rules and routes were last seen in the kernel
	health   health
	program  *program         // of the driver "program"
	mac      net.HardwareAddr // of a label-aware instance's link
	placed   map[vnf.Place]bool
	problems map[vnf.Place]string
	filters  map[int]*vnf.PacketFilter // of a native instance, by index
}

const (
	rebuildDelay  = 5 * time.Second
	verifyEvery   = 5 * time.Second
	rulesetLimit  = 10 * time.Second
	stateHealthy  = api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY
	stateStarting = api.VnfInstanceState_VNF_INSTANCE_STATE_STARTING
	stateDraining = api.VnfInstanceState_VNF_INSTANCE_STATE_DRAINING
	stateDead     = api.VnfInstanceState_VNF_INSTANCE_STATE_DEAD
)

// step brings the instance towards serving the placements, and looks after its health.
func (in *instance) step(ctx context.Context, site *hostnet.Namespace, r *records, placements []Placement) {
	if in.retired {
		placements = nil
	}
	err := in.tryStep(ctx, site, r, placements)
	state, reason := stateHealthy, in.placesOut(r)
	if err != nil {
		state, reason = stateDead, err.Error()
	}
	if state != in.state || reason != in.reason {
		if in.state != 0 && state != in.state {
			in.log.Info("instance changes", "state", state.String(), "reason", reason)
		}
		in.state, in.reason, in.since = state, reason, time.Now()
	}
}

func (in *instance) tryStep(ctx context.Context, site *hostnet.Namespace, r *records, placements []Placement) error {
	driver := driverOf(in.deployment)
	if driver == nil {
		return fmt.Errorf("no driver %q of attachment %s; use one of %s", in.deployment.Driver, in.deployment.Attachment,
			strings.Join(chain.Drivers, ", "))
	}
	if driver.kind == vnf.Native {
		return in.serveNative(ctx, r, driver, placements)
	}
	if in.handle != nil && !in.handle.Current() {
		if err := in.program.end(in.handle); err != nil { // it would go on in what was the namespace
			return err
		}
		in.release()
		in.built, in.lost, in.ports = false, time.Now(), nil
	}
	if wait := rebuildDelay - time.Since(in.lost); wait > 0 {
		return fmt.Errorf("namespace %s is gone", in.namespace)
	}
	if in.handle == nil {
		if err := r.make(ctx, in.name, in.deployment); err != nil {
			return err
		}
		namespace, err := hostnet.EnsureNamespace(in.namespace)
		if err != nil {
			return err
		}
		in.handle = namespace
	}
	if err := in.build(site, in.handle, driver); err != nil {
		return err
	}
	if err := in.serve(ctx, in.handle, driver, r, placements); err != nil {
		return err
	}
	return in.probe(ctx, in.handle, driver)
}

// release lets go of the namespace, which stays.
func (in *instance) release() {
	in.health.close()
	if in.handle != nil {
		in.handle.Close()
		in.handle = nil
	}
}

func (in *instance) links(d *driver) []string {
	switch {
	case d.kind == vnf.Transparent:
		return []string{ingressLink, egressLink}
	case d.kind.LabelAware():
		return []string{labelLink}
	}
	return []string{gatewayLink}
}

// build makes the links and what holds for the whole namespace, once.
func (in *instance) build(site, namespace *hostnet.Namespace, d *driver) error {
	if in.built {
		return nil
	}
	ports := map[string]string{}
	for _, link := range in.links(d) {
		port, err := ensureLink(site, namespace, link, d.kind.LabelAware())
		if err != nil {
			return err
		}
		ports[link] = port
	}
	var err error
	switch d.kind {
	case vnf.Gateway:
		err = prepareGateway(namespace)
	case vnf.Transparent:
		err = prepareTransparent(namespace)
	default:
		in.mac, err = prepareLabelAware(namespace)
	}
	if err != nil {
		return err
	}
	in.openProbes(namespace, d)
	in.built, in.ports, in.paired, in.mended, in.applied = true, ports, map[int]bool{}, map[int]bool{}, ""
	return nil
}

// serve makes interfaces and rules for the placements, and keeps those of others until they are removed.
func (in *instance) serve(ctx context.Context, namespace *hostnet.Namespace, d *driver, r *records, placements []Placement) error {
	placed, err := in.place(ctx, d, r, placements)
	if err != nil {
		return err
	}
	var slots []slot
	for _, s := range placed {
		if err := in.pair(namespace, d, s.record); err != nil {
			in.problems[s.record.Place] = fmt.Sprintf("instance %s: %v", in.name, err)
			delete(in.placed, s.record.Place)
			continue
		}
		slots = append(slots, s)
	}
	if d.kind.LabelAware() {
		in.noteVisits(r)
		return in.program.run(namespace, d.kind, r.of(in.name), in.deployment.Options)
	}
	return in.apply(ctx, namespace, d.ruleset(slots))
}

// place finds or makes the records of the placements, and reads the options of all that the instance has.
func (in *instance) place(ctx context.Context, d *driver, r *records, placements []Placement) ([]slot, error) {
	in.placed, in.problems = map[vnf.Place]bool{}, map[vnf.Place]string{}
	addresses, err := parsePool(in.deployment.Pool)
	if err != nil {
		return nil, err
	}
	for _, p := range placements {
		one, err := r.obtain(ctx, in.name, p, d, addresses)
		if err == nil {
			err = r.keepPlacement(ctx, one, p, d)
		}
		if err != nil {
			in.problems[p.Place] = fmt.Sprintf("instance %s: %v", in.name, err)
			continue
		}
		in.placed[p.Place] = true
	}
	var slots []slot
	for _, one := range r.of(in.name) {
		s := slot{record: one, index: one.Index, source: one.Source, vlan: vlanOf(one.Index)}
		if err := d.configure(&s, one.options(), in.deployment.Options); err != nil {
			in.problems[one.Place] = fmt.Sprintf("options of VNF %s: %v", in.deployment.VNF, err)
			delete(in.placed, one.Place)
			continue
		}
		slots = append(slots, s)
	}
	return slots, nil
}

func (in *instance) pair(namespace *hostnet.Namespace, d *driver, one *record) error {
	if in.paired[one.Index] && !in.mended[one.Index] {
		return nil
	}
	if d.kind == vnf.Gateway {
		ingress, errI := net.ParseMAC(one.IngressMAC)
		egress, errE := net.ParseMAC(one.EgressMAC)
		if err := errors.Join(errI, errE, ensurePair(namespace, one.Index, ingress, egress)); err != nil {
			return err
		}
	}
	in.paired[one.Index] = true
	delete(in.mended, one.Index)
	return nil
}

// noteVisits keeps what probes of each place bear.
func (in *instance) noteVisits(r *records) {
	in.visits = map[int][2]visit{}
	records := r.of(in.name)
	for i, place := range placesOf(records, nil) {
		in.visits[records[i].Index] = [2]visit{place.Forward, place.Reverse}
	}
}

// placesIll are the records of places that are out of use.
func (in *instance) placesIll(r *records) []*record {
	return slices.DeleteFunc(slices.Clone(r.of(in.name)), func(one *record) bool { return in.health.ill[one.Index] == nil })
}

// placesOut says which chains' places are out of use, and why.
func (in *instance) placesOut(r *records) string {
	var all []string
	for _, one := range in.placesIll(r) {
		all = append(all, fmt.Sprintf("out of use for chain %s/%s: %s", one.Customer, one.Chain, in.health.ill[one.Index].why))
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// unplace removes a place's interfaces and its record.
func (in *instance) unplace(ctx context.Context, r *records, one *record) error {
	if one.IngressMAC != "" && in.handle != nil {
		if err := removePair(in.handle, one.Index); err != nil {
			return err
		}
	}
	delete(in.paired, one.Index)
	return r.drop(ctx, one)
}

func (in *instance) apply(ctx context.Context, namespace *hostnet.Namespace, ruleset string) error {
	if ruleset == in.applied {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, rulesetLimit)
	defer cancel()
	if err := namespace.ApplyRuleset(ctx, ruleset); err != nil {
		return err
	}
	in.applied, in.verified = ruleset, time.Now()
	return nil
}

// probe checks that the instance can do its work: its links and interfaces are up, packets come through, and every few
// seconds that its rules are there.
func (in *instance) probe(ctx context.Context, namespace *hostnet.Namespace, d *driver) error {
	states, err := namespace.Links()
	if err != nil {
		return err
	}
	for _, link := range in.links(d) {
		state, exists := states[link]
		if !exists { // and so the site's end
			in.ports = nil
		}
		if !state.Up {
			in.built = false // and repaired by the next step
			return fmt.Errorf("interface %s in namespace %s is down or gone", link, namespace.Name)
		}
	}
	for index := range in.paired {
		for _, name := range []string{ingressName(index), egressName(index)} {
			if d.kind == vnf.Gateway && !states[name].Up {
				in.ails(index, fmt.Sprintf("interface %s in namespace %s is down or gone", name, namespace.Name))
			}
		}
	}
	if err := in.probeLanes(ctx, namespace, states, d); err != nil || d.kind.LabelAware() || time.Since(in.verified) < verifyEvery {
		return err
	}
	return in.verify(ctx, namespace, d)
}

// verify looks for the rules, and puts back routes and variables that are not as they should be.
func (in *instance) verify(ctx context.Context, namespace *hostnet.Namespace, d *driver) error {
	if d.kind == vnf.Gateway {
		err := prepareGateway(namespace)
		for index := range in.paired {
			if in.health.ill[index] == nil { // those are made anew
				err = errors.Join(err, ensureWays(namespace, index))
			}
		}
		if err != nil {
			return err
		}
	}
	family := "inet"
	if d.kind == vnf.Transparent {
		family = "bridge"
	}
	ctx, cancel := context.WithTimeout(ctx, rulesetLimit)
	defer cancel()
	listed, err := namespace.Ruleset(ctx, family, "switchboard")
	if err == nil && !bytes.Contains(listed, []byte(`"forward"`)) {
		err = errors.New("the forward chain is gone")
	}
	if err != nil {
		in.applied = ""
		return fmt.Errorf("nftables table %s switchboard in namespace %s is gone: %.80s", family, in.namespace, err)
	}
	in.verified = time.Now()
	return nil
}

// empty reports whether nothing of the instance is used or wanted.
func (in *instance) empty(r *records) bool { return !r.has(in.name) }

// destroy removes the instance's links and namespace.
func (in *instance) destroy() error {
	in.release()
	if !hostnet.NamespaceExists(in.namespace) {
		return nil
	}
	namespace, err := hostnet.OpenNamespace(in.namespace)
	if err != nil {
		return err
	}
	defer namespace.Close()
	if err := in.program.end(namespace); err != nil {
		return err
	}
	// Whoever is still in the namespace keeps it, but not the links.
	for _, link := range []string{gatewayLink, ingressLink, egressLink, labelLink} {
		if err := namespace.DeleteLink(link); err != nil {
			return err
		}
	}
	return hostnet.DeleteNamespace(in.namespace)
}

func (in *instance) status() Status {
	s := Status{Name: in.name, VNF: in.deployment.VNF, Deployment: in.deployment.Name, Namespace: in.namespace, Forwarder: in.forwarder,
		Weight: in.weight,
		State:  in.state, Reason: in.reason, Since: in.since}
	for _, port := range in.ports {
		s.Ports = append(s.Ports, port)
	}
	slices.Sort(s.Ports)
	if d := driverOf(in.deployment); d != nil && d.kind == vnf.Native {
		s.Namespace = "" // it is in its forwarder
	}
	if in.retired {
		s.Weight = 0
	}
	if s.State == stateHealthy && s.Weight == 0 {
		s.State = stateDraining
	}
	return s
}

// attachments are the interfaces that exist, as forwarders must know them. Of an instance whose links are gone there are
// none: a forwarder could not open their ports.
func (in *instance) attachments(r *records) []vnf.Attachment {
	d := driverOf(in.deployment)
	if d == nil || in.ports == nil {
		return nil
	}
	var all []vnf.Attachment
	for _, one := range r.of(in.name) {
		if !in.paired[one.Index] {
			continue
		}
		a := vnf.Attachment{ID: one.attachmentID(), Instance: in.name, Forwarder: in.forwarder, Place: one.Place, Kind: d.kind,
			State: vnf.Active, Weight: in.status().Weight, MTU: linkMTU}
		switch {
		case d.kind == vnf.Native:
			a.IngressPort, a.EgressPort = vnf.NativePorts(in.name)
			a.IngressVLAN, a.EgressVLAN = uint32(vlanOf(one.Index)), uint32(vlanOf(one.Index))
			a.Filter = in.filters[one.Index]
		case d.kind == vnf.Transparent:
			a.IngressPort, a.EgressPort = in.ports[ingressLink], in.ports[egressLink]
			a.IngressVLAN, a.EgressVLAN = uint32(vlanOf(one.Index)), uint32(vlanOf(one.Index))
		case d.kind.LabelAware():
			a.IngressPort, a.EgressPort = in.ports[labelLink], in.ports[labelLink]
			a.IngressMAC, a.EgressMAC = in.mac, in.mac
		default:
			a.IngressPort, a.EgressPort = in.ports[gatewayLink], in.ports[gatewayLink]
			a.IngressMAC, _ = net.ParseMAC(one.IngressMAC)
			a.EgressMAC, _ = net.ParseMAC(one.EgressMAC)
		}
		switch {
		case in.state == stateDead || in.health.ill[one.Index] != nil:
			a.State, a.Weight = vnf.Dead, 0
		case !in.placed[one.Place] || a.Weight == 0:
			a.State, a.Weight = vnf.Draining, 0
		}
		all = append(all, a)
	}
	return all
}

// options are those of the record's chain; kept with it so that a place that only drains is configured alike to its end.
func (r *record) options() *structpb.Struct {
	read := &structpb.Struct{}
	if len(r.Options) > 0 && protojson.Unmarshal(r.Options, read) != nil {
		return nil // written by keepOptions, so never
	}
	return read
}
