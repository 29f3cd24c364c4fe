package global

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	api "github.com/switchboard-project/switchboard/gen/switchboard/api/v1"
	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// labels are those given out. A label's key in the store names its holder: creating it is what makes it unique.
type labels struct {
	sites  map[chain.SiteName]chain.Label
	holder map[chain.Label]string
	// uses are the VNFs of the version that a chain's label was taken for, of labels read from the store.
	uses map[chain.Label][]chain.Use
	// last is the chain label given out last: those after it have rested longest.
	last chain.Label
}

func newLabels() labels {
	return labels{sites: map[chain.SiteName]chain.Label{}, holder: map[chain.Label]string{}, uses: map[chain.Label][]chain.Use{}}
}

const (
	siteHolder = "site "
	// lastLabelKey has the number of the chain label that was given out last, where that has been released.
	lastLabelKey = "lastlabel"
)

func labelKey(l chain.Label) string { return bus.Key(labelPrefix, strconv.FormatUint(uint64(l), 10)) }

// A label's value in the store: its holder, and after a line end, for a chain's label, the VNFs it was taken for as JSON.
func labelValue(holder string, uses []chain.Use) ([]byte, error) {
	if uses == nil {
		return []byte(holder), nil
	}
	text, err := json.Marshal(uses)
	return append([]byte(holder+"\n"), text...), err
}

func readLabelValue(value []byte) (holder string, uses []chain.Use, err error) {
	holder, text, described := strings.Cut(string(value), "\n")
	if described {
		err = json.Unmarshal([]byte(text), &uses)
	}
	return holder, uses, err
}

// readLabels reads the labels given out. The one that was stored last was given last, unless a later entry says that it has been
// released since.
func (g *Global) readLabels(ctx context.Context) error {
	entries, err := g.store.List(ctx, labelPrefix)
	if err != nil {
		return err
	}
	newest := uint64(0)
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimPrefix(e.Key, labelPrefix+"."), 10, 20)
		if err != nil {
			return fmt.Errorf("label %s: %w", e.Key, err)
		}
		label := chain.Label(number)
		holder, uses, err := readLabelValue(e.Value)
		if err != nil {
			return fmt.Errorf("label %s is damaged: %w", e.Key, err)
		}
		g.labels.note(label, holder)
		g.labels.uses[label] = uses
		if label.IsChain() && e.Revision > newest {
			newest, g.labels.last = e.Revision, label
		}
	}
	released, err := g.store.Get(ctx, lastLabelKey)
	if errors.Is(err, bus.ErrNotFound) || err == nil && released.Revision < newest {
		return nil
	}
	if err != nil {
		return err
	}
	number, err := strconv.ParseUint(string(released.Value), 10, 20)
	if err != nil {
		return fmt.Errorf("%s: %w", lastLabelKey, err)
	}
	g.labels.last = chain.Label(number)
	return nil
}

func (l *labels) note(label chain.Label, holder string) {
	l.holder[label] = holder
	if site, ok := strings.CutPrefix(holder, siteHolder); ok {
		l.sites[chain.SiteName(site)] = label
	}
}

// takeLabel finds a free label and makes it the holder's, durably; uses are the VNFs of a chain's version.
func (g *Global) takeLabel(ctx context.Context, holder string, uses []chain.Use, next func(taken func(chain.Label) bool) (chain.Label, error)) (chain.Label, error) {
	value, err := labelValue(holder, uses)
	if err != nil {
		return 0, err
	}
	for {
		g.mu.Lock()
		label, err := next(func(l chain.Label) bool { _, taken := g.labels.holder[l]; return taken })
		if err == nil {
			g.labels.note(label, holder)
		}
		g.mu.Unlock()
		if err != nil {
			return 0, err
		}
		_, err = g.store.Create(ctx, labelKey(label), value)
		if err == nil {
			return label, nil
		}
		if !errors.Is(err, bus.ErrConflict) {
			g.mu.Lock()
			delete(g.labels.holder, label)
			g.mu.Unlock()
			return 0, err
		}
		// Another's: it stays noted as taken.
	}
}

// takeChainLabel gives a chain a label for a new version with these VNFs.
func (g *Global) takeChainLabel(ctx context.Context, key chain.Key, uses []chain.Use) (chain.Label, error) {
	if uses == nil {
		uses = []chain.Use{}
	}
	return g.takeLabel(ctx, key.String(), uses, func(taken func(chain.Label) bool) (chain.Label, error) {
		label, err := chain.NextChainLabel(g.labels.last, taken)
		g.labels.last = label
		return label, err
	})
}

// siteLabel is a site's label; it gets one when it is first asked for, and keeps it.
func (g *Global) siteLabel(ctx context.Context, site chain.SiteName) (chain.Label, error) {
	g.mu.Lock()
	label, known := g.labels.sites[site]
	g.mu.Unlock()
	if known {
		return label, nil
	}
	return g.takeLabel(ctx, siteHolder+string(site), nil, chain.NextSiteLabel)
}

// releaseLabel lets go of a label. Where it was given out last that is written down first: another chain that took it at once, after a
// restart, could get packets of connections of its old holder.
func (g *Global) releaseLabel(ctx context.Context, label chain.Label) error {
	g.mu.Lock()
	last := g.labels.last
	g.mu.Unlock()
	if label == last {
		if _, err := g.store.Put(ctx, lastLabelKey, []byte(strconv.FormatUint(uint64(last), 10))); err != nil {
			return err
		}
	}
	if err := g.store.Delete(ctx, labelKey(label)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.labels.holder, label)
	delete(g.labels.uses, label)
	return nil
}

// releaseStrayLabels lets go of chain labels that no version has and no open transaction is about. A chain that is not active keeps one:
// its plan was refused, or not agreed on before the process ended, and the next attempt takes the same label.
func (g *Global) releaseStrayLabels(ctx context.Context) error {
	used := g.coordinate.labels()
	for _, record := range g.records {
		for _, v := range record.Versions {
			used[chain.Label(v.ChainLabel)] = true
		}
	}
	keeps := map[string]chain.Key{} // by holder
	for key, state := range g.states {
		if !state.Deleting && state.GetStatus().GetPhase() != api.ChainPhase_CHAIN_PHASE_ACTIVE {
			keeps[key.String()] = key
		}
	}
	for _, label := range slices.Sorted(maps.Keys(g.labels.holder)) {
		holder, uses := g.labels.holder[label], g.labels.uses[label]
		if used[label] || strings.HasPrefix(holder, siteHolder) {
			continue
		}
		if key, keep := keeps[holder]; keep && uses != nil {
			g.spares[key] = spareLabel{label, uses}
			delete(keeps, holder)
			continue
		}
		if err := g.releaseLabel(ctx, label); err != nil {
			return err
		}
	}
	return nil
}

// releaseSiteLabel lets go of the label of a site that was deleted.
func (g *Global) releaseSiteLabel(ctx context.Context, site chain.SiteName) error {
	g.mu.Lock()
	label, known := g.labels.sites[site]
	delete(g.labels.sites, site)
	g.mu.Unlock()
	if !known {
		return nil
	}
	return g.releaseLabel(ctx, label)
}
