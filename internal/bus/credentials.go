package bus

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Kind says what an agent is, and so what its server lets it do. See permissions.
type Kind string

// The kinds of agent.
const (
	// KindController may use every bucket, service and subscription of its site: Local and Global Switchboard.
	KindController Kind = "controller"
	// KindService may do what a controller may, except write forwarders' rules and the model: VNF and edge
	// controllers.
	KindService Kind = "service"
	// KindForwarder may read its rules, write its own status, say that it lives and answer requests.
	KindForwarder Kind = "forwarder"
	// KindOptimiser may read the model that traffic engineering works on, answer requests about it, and say that it lives.
	KindOptimiser Kind = "optimiser"

	// kindSite is the site process itself, in process only.
	kindSite Kind = "site"
)

// Credentials let one agent into its own site's server. The file form is this struct as JSON, mode 0600.
type Credentials struct {
	// Site is the site whose server takes them.
	Site string `json:"site"`
	// URL is where that server listens for agents, for example nats://127.0.0.1:4222.
	URL string `json:"url"`
	// User is "<kind>.<name>".
	User string `json:"user"`
	// Password proves it.
	Password string `json:"password"`
	// InboxPrefix is the only place where the agent may receive replies.
	InboxPrefix string `json:"inbox_prefix"`
}

// ReadCredentials reads a file that Server.WriteCredentials wrote.
func ReadCredentials(path string) (Credentials, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Credentials{}, fmt.Errorf("bus: read credentials: %w", err)
	}
	var c Credentials
	if err := json.Unmarshal(text, &c); err != nil {
		return Credentials{}, fmt.Errorf("bus: credentials file %s: %w", path, err)
	}
	for field, value := range map[string]string{"url": c.URL, "user": c.User, "password": c.Password,
		"inbox_prefix": c.InboxPrefix} {
		if value == "" {
			return Credentials{}, fmt.Errorf("bus: credentials file %s: field %q is missing", path, field)
		}
	}
	return c, nil
}

// mint derives agents' passwords from one secret of the site, so that the server keeps no table of them: removing the
// secret's file and restarting the server revokes them all.
type mint struct{ secret []byte }

const secretSize = 32

// openMint reads the site's secret, or makes it at the first start.
func openMint(directory string) (*mint, error) {
	path := filepath.Join(directory, "agents.secret")
	secret, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		secret = make([]byte, secretSize)
		rand.Read(secret)
		err = writePrivate(path, secret)
	}
	if err != nil {
		return nil, fmt.Errorf("bus: agents' secret: %w", err)
	}
	if len(secret) != secretSize {
		return nil, fmt.Errorf("bus: agents' secret %s has %d bytes, not %d; remove it to have a new one made",
			path, len(secret), secretSize)
	}
	return &mint{secret}, nil
}

func userName(kind Kind, name string) string { return string(kind) + "." + name }

func inboxPrefix(kind Kind, name string) string { return "_INBOX." + userName(kind, name) }

func (m *mint) password(user string) string {
	h := hmac.New(sha256.New, m.secret)
	h.Write([]byte(user))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// check returns the kind and name behind a user and password.
func (m *mint) check(user, password string) (Kind, string, bool) {
	kind, name, ok := strings.Cut(user, ".")
	if !ok || !hmac.Equal([]byte(password), []byte(m.password(user))) {
		return "", "", false
	}
	return Kind(kind), name, true
}

func (m *mint) issue(site, url string, kind Kind, name string) (Credentials, error) {
	switch kind {
	case KindController, KindService, KindForwarder, KindOptimiser, kindSite:
	default:
		return Credentials{}, fmt.Errorf("%w: agent kind %q: use controller, service, forwarder or optimiser", ErrInvalidKey, kind)
	}
	if err := validName("agent name", name); err != nil {
		return Credentials{}, err
	}
	user := userName(kind, name)
	return Credentials{Site: site, URL: url, User: user, Password: m.password(user), InboxPrefix: inboxPrefix(kind, name)}, nil
}

// writePrivate writes a file that only its owner can read, whole or not at all.
func writePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.Write(content); err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
