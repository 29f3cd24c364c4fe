package site

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
)

// hearStatus takes a forwarder's report.
func (s *Switchboard) hearStatus(e bus.Event) {
	if e.Kind != bus.Put {
		return
	}
	status := &rules.Status{}
	if err := proto.Unmarshal(e.Value, status); err != nil {
		s.log.Warn("a forwarder's report cannot be read", "forwarder", e.Key, "error", err)
		return
	}
	if status.Site != s.config.Site || status.Forwarder != e.Key {
		s.log.Warn("a forwarder's report is of another", "forwarder", e.Key, "says", status.Site+"/"+status.Forwarder)
		return
	}
	if !slices.ContainsFunc(s.ownForwarders(), func(f Forwarder) bool { return f.Name == e.Key }) {
		return // it has handed everything over, and ends
	}
	s.results.rates.hear(s.state.statuses[e.Key], status)
	s.state.statuses[e.Key] = status
}

// report publishes what others know of the site from it. Records that tell more than counts go out at once.
func (s *Switchboard) report(ctx context.Context) error {
	if s.state.observed == nil || !s.results.computed {
		return nil
	}
	r := &s.results
	r.watchDrains(s.state.observed.Attachments)
	if r.advanceDrains(s.state.statuses) {
		s.rulesDue = true
	}
	r.progress.advance(s.state.statuses)
	if err := s.readPublished(ctx); err != nil {
		return err
	}
	records := map[string]proto.Message{}
	for _, f := range s.ownForwarders() {
		records[bus.Key("forwarder", f.Name)] = s.forwarderRecord(f)
	}
	s.chainRecords(records)
	s.instanceRecords(records)
	for key, status := range s.edges {
		records[bus.Key("edge", cmp.Or(key.Customer, "-"), key.Edge)] = &control.EdgeObserved{Site: s.config.Site, Edge: key.Edge,
			Customer: key.Customer, Up: status.Up, Reason: status.Reason}
	}
	err := s.publish(ctx, records)
	r.countsDue = false
	return err
}

// ownPrefixes are below which this process publishes.
var ownPrefixes = []string{"forwarder", "instance", "edge", "progress", "measurement"}

func (s *Switchboard) readPublished(ctx context.Context) error {
	if s.results.published != nil {
		return nil
	}
	published := map[string][]byte{}
	for _, prefix := range ownPrefixes {
		entries, err := s.connection.Published().List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, e := range entries {
			published[e.Key] = e.Value
		}
	}
	s.results.published = published
	s.results.resume()
	return nil
}

// resume goes on from the progress that an earlier run reported: it never goes back.
func (r *results) resume() {
	for key, value := range r.published {
		record := &control.ChainProgress{}
		if !strings.HasPrefix(key, "progress.") || proto.Unmarshal(value, record) != nil {
			continue
		}
		chain := ChainKey{record.Customer, record.Chain}
		if _, takesPart := r.chains[chain]; takesPart {
			r.progress.applied[chain] = max(r.progress.applied[chain], record.AppliedRevision)
		}
	}
}

// publish makes the site's published records those given.
func (s *Switchboard) publish(ctx context.Context, records map[string]proto.Message) error {
	for _, key := range sortedKeys(records) {
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(records[key])
		if err != nil {
			return err
		}
		old, known := s.results.published[key]
		if known && bytes.Equal(old, value) || known && !s.results.countsDue && onlyCounts(records[key], old) || known && onlyLater(records[key], old) {
			continue
		}
		if _, err := s.connection.Published().Put(ctx, key, value); err != nil {
			return fmt.Errorf("publish %s: %w", key, err)
		}
		s.results.published[key] = value
	}
	for key := range s.results.published {
		if records[key] == nil {
			if err := s.connection.Published().Delete(ctx, key); err != nil {
				return fmt.Errorf("withdraw %s: %w", key, err)
			}
			delete(s.results.published, key)
		}
	}
	return nil
}

// onlyCounts reports whether a record differs from its published form in nothing but counters, which can wait a moment.
func onlyCounts(record proto.Message, published []byte) bool {
	old := record.ProtoReflect().New().Interface()
	if proto.Unmarshal(published, old) != nil {
		return false
	}
	a, b := proto.Clone(record), old
	for _, m := range []proto.Message{a, b} {
		switch m := m.(type) {
		case *control.ForwarderRecord:
			m.FlowEntries, m.Drops, m.LatencyP50Us, m.LatencyP99Us = 0, nil, 0, 0
		case *control.InstanceRecord:
			m.Observed.Flows, m.Observed.Packets = 0, 0
		case *control.ChainProgress:
			m.Flows = nil
		case *control.Measurement:
			return true
		}
	}
	return proto.Equal(a, b)
}

// onlyLater reports whether a measurement differs from its published form in nothing but the time: nothing has passed.
func onlyLater(record proto.Message, published []byte) bool {
	m, is := record.(*control.Measurement)
	old := &control.Measurement{}
	if !is || proto.Unmarshal(published, old) != nil {
		return false
	}
	old.TimeUnixMs = m.TimeUnixMs
	return proto.Equal(m, old)
}

func (s *Switchboard) forwarderRecord(f Forwarder) *control.ForwarderRecord {
	status := s.state.statuses[f.Name]
	record := &control.ForwarderRecord{Site: s.config.Site, Forwarder: f.Name, Address: hostAddress(f.TunnelAddress),
		Alive: s.state.present[f.Name], VnfWeights: map[string]uint32{},
		AppliedGeneration: status.GetAppliedGeneration(), DesiredGeneration: s.results.rules[f.Name].GetGeneration(),
		FlowEntries: status.GetFlowEntries(), Drops: status.GetDrops(),
		LatencyP50Us: stayed(status, 0.50), LatencyP99Us: stayed(status, 0.99)}
	for _, in := range s.state.observed.Instances {
		if in.Forwarder == f.Name {
			weight := in.Weight
			if in.State != api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY {
				weight = 0
			}
			record.VnfWeights[in.VNF] += weight
			if servesItsConnections(in.State) && !slices.Contains(record.Serves, in.VNF) {
				record.Serves = append(record.Serves, in.VNF)
			}
		}
	}
	for key, forwarder := range s.state.usableEdges {
		if forwarder == f.Name {
			record.Edges = append(record.Edges, key.String())
		}
	}
	slices.Sort(record.Edges)
	slices.Sort(record.Serves)
	record.OutOfUse = outOfUse(s.state.observed.Attachments, f.Name, record.Serves)
	record.Leaving = s.state.leaving[f.Name] != nil
	for gone, to := range s.tookOver() {
		if to == f.Name {
			record.TookOver = append(record.TookOver, gone)
		}
	}
	slices.Sort(record.TookOver)
	return record
}

func servesItsConnections(s api.VnfInstanceState) bool {
	return s == api.VnfInstanceState_VNF_INSTANCE_STATE_HEALTHY || s == api.VnfInstanceState_VNF_INSTANCE_STATE_DRAINING
}

// chainRecords adds progress and measurements of every chain that the site takes part in.
func (s *Switchboard) chainRecords(records map[string]proto.Message) {
	flows := s.flowsByLabel()
	for key := range s.results.chains {
		progress := &control.ChainProgress{Site: s.config.Site, Customer: key.Customer, Chain: key.Chain,
			AppliedRevision: s.results.progress.applied[key], Flows: map[uint32]uint64{}, Joined: s.results.chains[key].Joined}
		progress.Problem, progress.ProblemRevision = s.results.progress.problem(key, s.state.statuses, s.results.rules)
		for _, label := range s.labelsOf(key) {
			progress.Flows[label] = flows[label]
			if why := s.state.observed.Problems[label]; why != "" && progress.Problem == "" {
				progress.Problem, progress.ProblemRevision = why, s.results.chains[key].Revision
			}
		}
		records[bus.Key("progress", key.Customer, key.Chain)] = progress
		if m := s.results.rates.measurement(s.config.Site, key, s.labelsOf(key), s.state.statuses); m != nil {
			records[bus.Key("measurement", key.Customer, key.Chain)] = m
		}
	}
}

func (s *Switchboard) labelsOf(key ChainKey) []uint32 {
	var labels []uint32
	for _, record := range s.state.chains {
		if record.Customer == key.Customer && record.Chain == key.Chain {
			for _, v := range record.Versions {
				labels = append(labels, v.ChainLabel)
			}
		}
	}
	return labels
}

// flowsByLabel counts the flow entries of each chain label: those at the site's instances, and where there are none those
// of the stages. What a forwarder only passes on is counted where it goes.
func (s *Switchboard) flowsByLabel() map[uint32]uint64 {
	flows := map[uint32]uint64{}
	for name, status := range s.state.statuses {
		stages := stagesOf(s.results.rules[name])
		for _, c := range status.Stages {
			if c.Direction != rules.Direction_DIRECTION_FORWARD { // an entry serves both
				continue
			}
			stage := stages[placeKey{c.ChainLabel &^ 1, c.EgressLabel, c.Stage}]
			if len(stage.GetDownstream().GetLocal())+len(stage.GetUpstream().GetLocal()) > 0 {
				flows[c.ChainLabel&^1] += c.Flows
			}
		}
	}
	attached := map[uint32]uint64{}
	for _, a := range s.state.observed.Attachments {
		attached[a.ChainLabel] += s.state.statuses[a.Forwarder].GetAttachmentFlows()[a.ID]
	}
	for label, count := range attached {
		flows[label] = max(flows[label], count)
	}
	return flows
}

func (s *Switchboard) instanceRecords(records map[string]proto.Message) {
	for _, in := range s.state.observed.Instances {
		observed := &api.VnfInstance{Vnf: in.VNF, Site: s.config.Site, Deployment: in.Deployment, Weight: in.Weight, State: in.State,
			Reason: in.Reason, Namespace: in.Namespace, Chains: in.Chains, FailedChains: in.Failed,
			Since: timestamppb.New(in.Since)}
		status := s.state.statuses[in.Forwarder]
		for _, a := range s.state.observed.Attachments {
			if a.Instance == in.Name {
				observed.Flows += status.GetAttachmentFlows()[a.ID]
				observed.Packets += status.GetAttachmentPackets()[a.ID]
			}
		}
		records[bus.Key("instance", in.VNF, in.Name)] = &control.InstanceRecord{Site: s.config.Site, Vnf: in.VNF, Instance: in.Name,
			Deployment: in.Deployment, Observed: observed}
	}
}
