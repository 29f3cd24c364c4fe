package global

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/switchboard-project/switchboard/internal/bus"
	"github.com/switchboard-project/switchboard/internal/chain"
)

// labels are those given out. A label's key in the store names its holder: creating it is what makes it unique.
type labels struct {
	sites  map[chain.SiteName]chain.Label
	holder map[chain.Label]string
	last   chain.Label
}

func newLabels() labels {
	return labels{sites: map[chain.SiteName]chain.Label{}, holder: map[chain.Label]string{}}
}

const siteHolder = "site "

func labelKey(l chain.Label) string { return bus.Key(labelPrefix, strconv.FormatUint(uint64(l), 10)) }

func (g *Global) readLabels(ctx context.Context) error {
	entries, err := g.store.List(ctx, labelPrefix)
	if err != nil {
		return err
	}
	for _, e := range entries {
		number, err := strconv.ParseUint(strings.TrimPrefix(e.Key, labelPrefix+"."), 10, 20)
		if err != nil {
			return fmt.Errorf("label %s: %w", e.Key, err)
		}
		g.labels.note(chain.Label(number), string(e.Value))
	}
	return nil
}

func (l *labels) note(label chain.Label, holder string) {
	l.holder[label] = holder
	if site, ok := strings.CutPrefix(holder, siteHolder); ok {
		l.sites[chain.SiteName(site)] = label
	} else {
		l.last = max(l.last, label)
	}
}

// takeLabel finds a free label and makes it the holder's, durably.
func (g *Global) takeLabel(ctx context.Context, holder string, next func(taken func(chain.Label) bool) (chain.Label, error)) (chain.Label, error) {
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
		_, err = g.store.Create(ctx, labelKey(label), []byte(holder))
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

// takeChainLabel gives a chain a label for a new version.
func (g *Global) takeChainLabel(ctx context.Context, key chain.Key) (chain.Label, error) {
	return g.takeLabel(ctx, key.String(), func(taken func(chain.Label) bool) (chain.Label, error) {
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
	return g.takeLabel(ctx, siteHolder+string(site), chain.NextSiteLabel)
}

// releaseLabel lets go of a chain label.
func (g *Global) releaseLabel(ctx context.Context, label chain.Label) error {
	if err := g.store.Delete(ctx, labelKey(label)); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.labels.holder, label)
	return nil
}

// releaseStrayLabels lets go of chain labels that were taken for a plan the process did not live to agree on.
func (g *Global) releaseStrayLabels(ctx context.Context) error {
	used := g.coordinate.labels()
	for _, record := range g.records {
		for _, v := range record.Versions {
			used[chain.Label(v.ChainLabel)] = true
		}
	}
	for label, holder := range g.labels.holder {
		if !used[label] && !strings.HasPrefix(holder, siteHolder) {
			if err := g.releaseLabel(ctx, label); err != nil {
				return err
			}
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
