package site

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/switchboard-project/switchboard/internal/bus"
)

// forwardersBucket says which forwarders the site has or had: by it a forwarder that is no longer configured is noticed, also
// over a restart, and connections that still name one find who took over from it.
const forwardersBucket = "forwarders"

// knownForwarder is a forwarder's value in the bucket.
type knownForwarder struct {
	Forwarder Forwarder `json:"forwarder"`
	// Successor took over from it or is to.
	Successor string `json:"successor,omitempty"`
	// Gone says that it has handed everything over and is no more.
	Gone bool `json:"gone,omitempty"`
}

// leaver is a forwarder that is no longer configured and has not handed everything over yet, or did so a moment ago.
type leaver struct {
	Forwarder Forwarder
	Successor string
	handed    time.Time // zero until it has handed everything over
}

// Reload takes the forwarders and edge interfaces of a changed configuration; the rest needs a restart. What a removed forwarder
// has moves to another one before it goes (docs/forwarders.md).
func (s *Switchboard) Reload(ctx context.Context, config *Config) error {
	answer := make(chan error, 1)
	s.send(ctx, func() { answer <- s.reload(ctx, config) })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Switchboard) reload(ctx context.Context, config *Config) error {
	if err := s.refuse(config); err != nil {
		return err
	}
	next := *s.config
	next.Forwarders, next.EdgeInterfaces = config.Forwarders, config.EdgeInterfaces
	if !reflect.DeepEqual(&next, config) {
		s.log.Warn("more than forwarders and edgeInterfaces has changed: the rest counts after a restart")
	}
	s.config = &next
	s.rulesDue = true
	s.noteForwarders()
	return s.storeForwarders(ctx)
}

// refuse says what keeps a configuration from being taken, nil where nothing does.
func (s *Switchboard) refuse(config *Config) error {
	to := map[string]string{} // by the forwarder that goes
	for _, e := range config.EdgeInterfaces {
		from := s.state.homes.at(Thing{Interface: e.Name})
		stays := slices.ContainsFunc(config.Forwarders, func(f Forwarder) bool { return f.Name == from })
		if from == "" || stays {
			continue
		}
		if other, known := to[from]; known && other != e.Forwarder {
			return fmt.Errorf("edgeInterfaces: those of forwarder %s, which goes, are given to %s and %s; give all to one", from, other, e.Forwarder)
		}
		to[from] = e.Forwarder
	}
	return nil
}

// noteForwarders sees which forwarders are no longer configured, and which are again.
func (s *Switchboard) noteForwarders() {
	for _, f := range s.config.Forwarders {
		delete(s.state.leaving, f.Name)
		delete(s.state.gone, f.Name)
		s.state.known[f.Name] = f
	}
	for name, f := range s.state.known {
		if !s.isConfigured(name) && s.state.leaving[name] == nil && s.state.gone[name] == "" {
			s.state.leaving[name] = &leaver{Forwarder: f, Successor: s.successorOf(name)}
			s.log.Info("a forwarder is no longer configured and hands over what it has", "forwarder", name, "to", s.state.leaving[name].Successor)
		}
	}
	// Who was to take over may be gone itself.
	for _, l := range s.state.leaving {
		if !s.isConfigured(l.Successor) {
			l.Successor = s.successorOf(l.Forwarder.Name)
		}
	}
}

// successorOf is who takes over from a forwarder: who gets its edges, else who has least to do.
func (s *Switchboard) successorOf(name string) string {
	for _, e := range s.config.EdgeInterfaces {
		if s.state.homes.at(Thing{Interface: e.Name}) == name {
			return e.Forwarder
		}
	}
	load := map[string]int{}
	for _, at := range s.state.homes {
		load[at.forwarder]++
	}
	return leastLoaded(s.takers(), load)
}

// readForwarders reads which forwarders there were.
func (s *Switchboard) readForwarders(ctx context.Context) error {
	entries, err := s.connection.Local(forwardersBucket).List(ctx, "")
	if err != nil {
		return err
	}
	for _, e := range entries {
		known := knownForwarder{}
		if err := json.Unmarshal(e.Value, &known); err != nil {
			return fmt.Errorf("record of forwarder %s in the site's store is damaged: %w; remove the key to begin anew", e.Key, err)
		}
		s.state.known[e.Key] = known.Forwarder
		switch {
		case known.Gone:
			s.state.gone[e.Key] = known.Successor
		case known.Successor != "":
			s.state.leaving[e.Key] = &leaver{Forwarder: known.Forwarder, Successor: known.Successor}
		}
	}
	s.state.storedForwarders = map[string]knownForwarder{}
	s.noteForwarders()
	return s.storeForwarders(ctx)
}

// storeForwarders writes down which forwarders there are and were.
func (s *Switchboard) storeForwarders(ctx context.Context) error {
	for name, f := range s.state.known {
		value := knownForwarder{Forwarder: f, Successor: s.state.gone[name], Gone: s.state.gone[name] != ""}
		if l := s.state.leaving[name]; l != nil {
			value.Successor = l.Successor
		}
		if stored, is := s.state.storedForwarders[name]; is && reflect.DeepEqual(stored, value) {
			continue
		}
		text, err := json.Marshal(value)
		if err == nil {
			_, err = s.connection.Local(forwardersBucket).Put(ctx, bus.Key(name), text)
		}
		if err != nil {
			return err
		}
		s.state.storedForwarders[name] = value
	}
	return nil
}

// retire ends forwarders that have handed everything over; it says whether rules must follow.
func (s *Switchboard) retire(ctx context.Context) (changed bool) {
	for _, name := range sortedKeys(s.state.leaving) {
		l := s.state.leaving[name]
		switch {
		case s.state.homes.has(name):
			l.handed = time.Time{}
		case l.handed.IsZero():
			l.handed, changed = time.Now(), true
		case time.Since(l.handed) >= leaveTime:
			delete(s.state.leaving, name)
			s.state.gone[name] = l.Successor
			delete(s.state.statuses, name)
			delete(s.results.rates, name)
			s.results.progress.without(name)
			s.log.Info("a forwarder has handed everything over and may end", "forwarder", name)
			changed = true
			if err := s.storeForwarders(ctx); err != nil {
				s.log.Warn("which forwarders there are is not written down yet", "error", err)
			}
			if err := s.connection.Local(statusBucket).Delete(ctx, name); err != nil {
				s.log.Warn("the last report of a forwarder that is gone stays", "forwarder", name, "error", err)
			}
		}
	}
	return changed
}

// tookOver says, of forwarders that are gone or have handed everything over, who has what they had.
func (s *Switchboard) tookOver() map[string]string {
	next := map[string]string{}
	for name, to := range s.state.gone {
		next[name] = to
	}
	for name, l := range s.state.leaving {
		if !l.handed.IsZero() {
			next[name] = l.Successor
		}
	}
	final := map[string]string{}
	for name := range next {
		to := name
		for range len(next) + 1 {
			if next[to] == "" {
				break
			}
			to = next[to]
		}
		if s.isConfigured(to) {
			final[name] = to
		}
	}
	return final
}
