package site

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	control "github.com/switchboard-project/switchboard/gen/switchboard/control/v1"
	rules "github.com/switchboard-project/switchboard/gen/switchboard/forwarder/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/vnf/instance"
)

// state is all that the Local Switchboard was told.
type state struct {
	topics      map[Topic]*topicState
	need        Need
	directory   directory
	chains      map[string]*control.ChainRecord                // by key
	remote      map[string]map[string]*control.ForwarderRecord // by site and key
	allocations map[allocationKey]*control.AllocationRecord
	allotted    map[Topic]map[string]allocationKey // what each topic told, by key
	observed    *instance.Observed                 // nil until the agent has looked
	statuses    map[string]*rules.Status           // by forwarder
	present     map[string]bool                    // forwarders that live
	// presenceKnown says that all that live have been told.
	presenceKnown bool
	usableEdges   map[EdgeKey]string // by forwarder
	liveness      liveness
	seed          seed

	absences absences

	homes   homes
	copies  map[route]*copying
	known   map[string]Forwarder // configured now or before
	leaving map[string]*leaver
	gone    map[string]string // successors of forwarders that are no more
	// storedForwarders is what the bucket of forwarders says.
	storedForwarders map[string]knownForwarder

	// distances is nil when links have changed.
	distances func(from, to string) float64
}

type topicState struct {
	close        func()
	synchronised bool
}

// directory is what the Global Switchboard says of everything but chains.
type directory struct {
	links       map[string]*control.LinkRecord
	vnfs        map[string]*control.VnfRecord        // by VNF
	deployments map[string]*control.DeploymentRecord // by key
	edges       map[string]*control.EdgeRecord       // by key
}

func newState() state {
	return state{topics: map[Topic]*topicState{}, chains: map[string]*control.ChainRecord{},
		remote:      map[string]map[string]*control.ForwarderRecord{},
		allocations: map[allocationKey]*control.AllocationRecord{}, allotted: map[Topic]map[string]allocationKey{},
		absences: absences{}, homes: homes{}, copies: map[route]*copying{}, known: map[string]Forwarder{}, leaving: map[string]*leaver{}, gone: map[string]string{},
		storedForwarders: map[string]knownForwarder{},
		statuses:         map[string]*rules.Status{}, present: map[string]bool{}, liveness: newLiveness(), usableEdges: map[EdgeKey]string{},
		directory: directory{links: map[string]*control.LinkRecord{}, vnfs: map[string]*control.VnfRecord{},
			deployments: map[string]*control.DeploymentRecord{}, edges: map[string]*control.EdgeRecord{}}}
}

// topicsSynchronised reports whether the Global Switchboard's state is known.
func (s *state) topicsSynchronised(globalSite string) bool {
	return s.topics[Topic{globalSite, "directory"}].synchronised && s.topics[Topic{globalSite, "chain"}].synchronised
}

func (s *state) allSynchronised() bool {
	for _, t := range s.topics {
		if !t.synchronised {
			return false
		}
	}
	return true
}

// forget drops what a topic told that is no longer heard.
func (s *state) forget(topic Topic) {
	if topic.Prefix == forwardersPrefix {
		delete(s.remote, topic.Site)
	}
	for _, key := range s.allotted[topic] {
		delete(s.allocations, key)
	}
	delete(s.allotted, topic)
}

// forwarders lists those of other sites, as their sites see them.
func (s *state) forwarders() []*control.ForwarderRecord {
	var all []*control.ForwarderRecord
	for _, ofSite := range s.remote {
		all = slices.AppendSeq(all, maps.Values(ofSite))
	}
	return all
}

// hear takes one change of a topic.
func (s *state) hear(topic Topic, e bus.Event, log *slog.Logger) {
	var err error
	kind, rest, _ := strings.Cut(e.Key, ".")
	switch kind {
	case "directory":
		err = s.hearDirectory(rest, e)
	case "chain":
		err = keep(s.chains, e.Key, e, &control.ChainRecord{}, nil)
	case "forwarder":
		forwarders := s.remote[e.Site]
		if forwarders == nil {
			forwarders = map[string]*control.ForwarderRecord{}
			s.remote[e.Site] = forwarders
		}
		// A site speaks only for itself.
		err = keep(forwarders, e.Key, e, &control.ForwarderRecord{}, func(f *control.ForwarderRecord) bool { return f.Site == e.Site })
	case "allocation":
		err = s.hearAllocation(topic, e)
	}
	if err != nil {
		log.Warn("a record cannot be read", "site", e.Site, "key", e.Key, "error", err)
	}
}

func (s *state) hearDirectory(rest string, e bus.Event) error {
	kind, _, _ := strings.Cut(rest, ".")
	switch kind {
	case "link":
		s.distances = nil
		return keep(s.directory.links, e.Key, e, &control.LinkRecord{}, nil)
	case "vnf":
		tokens, err := bus.SplitKey(e.Key)
		if err != nil || len(tokens) != 3 {
			return err
		}
		return keep(s.directory.vnfs, tokens[2], e, &control.VnfRecord{}, nil)
	case "deployment":
		return keep(s.directory.deployments, e.Key, e, &control.DeploymentRecord{}, nil)
	case "platform":
		return s.hearPlatform(e)
	case "edge":
		return keep(s.directory.edges, e.Key, e, &control.EdgeRecord{}, func(r *control.EdgeRecord) bool { return r.Spec != nil })
	}
	return nil
}

// hearPlatform takes what all sites must have alike.
func (s *state) hearPlatform(e bus.Event) error {
	record := &control.PlatformRecord{}
	if err := proto.Unmarshal(e.Value, record); err != nil {
		return err
	}
	s.seed.digest, s.seed.again = record.SelectionSeedDigest, time.Time{}
	return nil
}

func (s *state) hearAllocation(topic Topic, e bus.Event) error {
	told := s.allotted[topic]
	if told == nil {
		told = map[string]allocationKey{}
		s.allotted[topic] = told
	}
	if e.Kind == bus.Delete {
		delete(s.allocations, told[e.Key])
		delete(told, e.Key)
		return nil
	}
	record := &control.AllocationRecord{}
	if err := proto.Unmarshal(e.Value, record); err != nil {
		return err
	}
	told[e.Key] = keyOfAllocation(record)
	s.allocations[told[e.Key]] = record
	return nil
}

// keep puts a change into a map. A record that cannot be read leaves the one before it.
func keep[M proto.Message](into map[string]M, key string, e bus.Event, record M, valid func(M) bool) error {
	if e.Kind == bus.Delete {
		delete(into, key)
		return nil
	}
	if err := proto.Unmarshal(e.Value, record); err != nil {
		return err
	}
	if valid == nil || valid(record) {
		into[key] = record
	}
	return nil
}

func (s *state) hearPresence(p bus.Presence) {
	switch p.Change {
	case bus.Put:
		s.present[p.Name] = true
	case bus.Delete:
		delete(s.present, p.Name)
	case bus.Synchronised:
		s.presenceKnown = true
	}
}

// encapsulations are those of a site's own links, by the site at the other end.
func (s *state) encapsulations(site string) map[string]api.Encapsulation {
	found := map[string]api.Encapsulation{}
	for _, record := range s.directory.links {
		spec := record.GetSpec()
		switch site {
		case spec.GetFrom():
			found[spec.GetTo()] = spec.GetEncapsulation()
		case spec.GetTo():
			found[spec.GetFrom()] = spec.GetEncapsulation()
		}
	}
	return found
}

func (s *state) latency() func(from, to string) float64 {
	if s.distances == nil {
		var links []*control.LinkRecord
		for _, key := range sortedKeys(s.directory.links) {
			links = append(links, s.directory.links[key])
		}
		s.distances = leastLatency(links)
	}
	return s.distances
}
