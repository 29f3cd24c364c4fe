package bus

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

const linksBucket = "links" // the site's links, key = peer; written by the site process

// Link is the state of the site's link to another.
type Link struct {
	// Peer is the other site.
	Peer string `json:"-"`
	// Up says whether requests and changes pass.
	Up bool `json:"up"`
	// Since is when that last changed.
	Since time.Time `json:"since"`
}

// Links tells how the site's links stand: one entry for every site that was ever connected or is configured.
func (c *Connection) Links(ctx context.Context) ([]Link, error) {
	entries, err := c.store(linksBucket).List(ctx, "")
	if err != nil {
		return nil, err
	}
	var links []Link
	for _, e := range entries {
		l, err := linkOf(e.Key, e.Value)
		if err != nil {
			return nil, err
		}
		links = append(links, l)
	}
	return links, nil
}

// WatchLinks tells how the site's links stand, and when one comes up or goes down. A reader that falls behind gets the
// last state of each.
func (c *Connection) WatchLinks(ctx context.Context) (<-chan Link, error) {
	events, err := c.store(linksBucket).Watch(ctx, "")
	if err != nil {
		return nil, err
	}
	out := make(chan Link)
	started := c.run(func() {
		defer close(out)
		for e := range events {
			l, err := linkOf(e.Key, e.Value)
			if e.Kind != Put || err != nil {
				continue
			}
			select {
			case out <- l:
			case <-ctx.Done():
				return
			case <-c.life.Done():
				return
			}
		}
	})
	if !started {
		return nil, ErrClosed
	}
	return out, nil
}

func linkOf(peer string, value []byte) (Link, error) {
	l := Link{Peer: peer}
	if err := json.Unmarshal(value, &l); err != nil {
		return l, fmt.Errorf("bus: state of the link to %s: %w", peer, err)
	}
	return l, nil
}

// linkBoard writes the links' states for agents to read.
type linkBoard struct {
	s     *Server
	store *Store
	more  chan struct{}

	mu    sync.Mutex
	links map[string]Link // not written yet
}

func newLinkBoard(s *Server) *linkBoard {
	return &linkBoard{s: s, store: s.core.store(linksBucket), more: make(chan struct{}, 1), links: map[string]Link{}}
}

// start says that all links are down, as they are at the start.
func (b *linkBoard) start(ctx, life context.Context) error {
	known, err := b.s.core.Links(ctx)
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, l := range known {
		seen[l.Peer] = true
		if l.Up {
			b.tell(l.Peer, false)
		}
	}
	for _, p := range b.s.config.Peers {
		if !seen[p.Site] {
			b.tell(p.Site, false)
		}
	}
	if err := b.write(ctx); err != nil {
		return err
	}
	b.s.run(func() {
		for {
			select {
			case <-life.Done():
				return
			case <-b.more:
			}
			if err := b.write(life); err != nil && life.Err() == nil {
				b.s.log.Warn("links' states", "error", err)
			}
		}
	})
	return nil
}

func (b *linkBoard) tell(peer string, up bool) {
	b.mu.Lock()
	b.links[peer] = Link{Peer: peer, Up: up, Since: time.Now().UTC()}
	b.mu.Unlock()
	select {
	case b.more <- struct{}{}:
	default:
	}
}

func (b *linkBoard) write(ctx context.Context) error {
	b.mu.Lock()
	links := b.links
	b.links = map[string]Link{}
	b.mu.Unlock()
	for peer, l := range links {
		if _, err := b.store.Put(ctx, peer, indentedJSON(l)); err != nil {
			return err
		}
	}
	return nil
}
