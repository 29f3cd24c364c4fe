package bus

import (
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/switchboard-project/switchboard/internal/needs"
)

func TestEnrolmentOverTheNetwork(t *testing.T) {
	ctx := testContext(t)
	authority := must(NewAuthority(t.TempDir()))(t)
	address := serveEnrolment(t, authority)
	token := must(authority.Token("east", time.Minute))(t)
	directory := t.TempDir()
	_, err := Enrol(ctx, address, token, "west", t.TempDir())
	wantError(t, err, ErrTokenRefused)
	id := must(Enrol(ctx, address, token, "east", directory))(t)
	expect(t, "site", id.Site, "east")
	_, err = Enrol(ctx, address, token, "east", t.TempDir())
	wantError(t, err, ErrTokenRefused) // one time only
	expect(t, "loaded site", must(LoadIdentity(directory))(t).Site, "east")
	expired := must(authority.Token("east", -time.Second))(t)
	_, err = Enrol(ctx, address, expired, "east", t.TempDir())
	wantError(t, err, ErrTokenRefused)
	_, err = Enrol(ctx, address, "nonsense", "east", t.TempDir())
	wantError(t, err, ErrTokenRefused)
}

func TestEnrolmentRefusesAnImpostor(t *testing.T) {
	ctx := testContext(t)
	authority, impostor := must(NewAuthority(t.TempDir()))(t), must(NewAuthority(t.TempDir()))(t)
	token := must(authority.Token("east", time.Minute))(t)
	directory := t.TempDir()
	_, err := Enrol(ctx, serveEnrolment(t, impostor), token, "east", directory)
	if err == nil || !strings.Contains(err.Error(), "not the authority that the token names") {
		t.Fatalf("error %v", err)
	}
	_, err = LoadIdentity(directory)
	wantError(t, err, ErrNotEnrolled)
	must(Enrol(ctx, serveEnrolment(t, authority), token, "east", directory))(t) // the token was not spent
}

func serveEnrolment(t *testing.T, a *Authority) string {
	t.Helper()
	l := must(tls.Listen("tcp", "127.0.0.1:0", must(a.ServerTLS())(t)))(t)
	server := &http.Server{Handler: a.Handler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

func TestAuthorityAndTokensOutliveTheProcess(t *testing.T) {
	directory := t.TempDir()
	first := must(NewAuthority(directory))(t)
	token := must(first.Token("east", time.Minute))(t)
	second := must(NewAuthority(directory))(t)
	request := must(certificateRequest(t.TempDir(), "east"))(t)
	certificate, root, err := second.Enrol(token, request)
	if err != nil || len(certificate) == 0 {
		t.Fatal(err)
	}
	expect(t, "authority", fingerprint(root), fingerprint(first.certificate.Raw))
}

func TestSecretsAreForTheirOwnerOnly(t *testing.T) {
	directory := t.TempDir()
	authority := must(NewAuthority(filepath.Join(directory, "authority")))(t)
	must(authority.EnrolSite("east", filepath.Join(directory, "east")))(t)
	site := newSite(t, "east", func(c *ServerConfig) { c.StoreDirectory = filepath.Join(directory, "store") })
	must(site.server.WriteCredentials(KindForwarder, "f1"))(t)
	for _, file := range []string{"authority/authority.key", "east/site.key", "store/agents.secret",
		"store/credentials/forwarder.f1.json", "store/credentials/controller.default.json"} {
		info := must(os.Stat(filepath.Join(directory, file)))(t)
		expect(t, file+" mode", info.Mode().Perm(), 0o600)
	}
}

func TestEnrolSiteKeepsAnIdentity(t *testing.T) {
	authority, directory := must(NewAuthority(t.TempDir()))(t), t.TempDir()
	first := must(authority.EnrolSite("east", directory))(t)
	second := must(authority.EnrolSite("east", directory))(t)
	expect(t, "serial", second.Certificate.Leaf.SerialNumber.String(), first.Certificate.Leaf.SerialNumber.String())
	if _, err := authority.EnrolSite("west", directory); err == nil {
		t.Fatal("the directory became another site's")
	}
}

func TestServerWaitsForItsAddress(t *testing.T) {
	address := needs.FreeAddress(t)
	l := must(net.Listen("tcp", address))(t)
	time.AfterFunc(300*time.Millisecond, func() { l.Close() })
	newSite(t, "a", func(c *ServerConfig) { c.LocalListen = address })
}

func TestServerConfigurationErrorsNameTheField(t *testing.T) {
	authority := must(NewAuthority(t.TempDir()))(t)
	id := must(authority.EnrolSite("east", t.TempDir()))(t)
	for field, config := range map[string]ServerConfig{
		"site name":              {Site: "East"},
		"StoreDirectory":         {Site: "east"},
		"Identity is":            {Site: "east", StoreDirectory: "/nonexistent", Listen: "127.0.0.1:0"},
		"not \"west\"":           {Site: "west", StoreDirectory: "/nonexistent", Identity: id},
		"Peers[0].Site":          {Site: "east", StoreDirectory: "/nonexistent", Identity: id, Peers: []Peer{{Site: "a b"}}},
		"Peers[1].Site":          {Site: "east", StoreDirectory: "/nonexistent", Identity: id, Peers: []Peer{{Site: "w"}, {Site: "w"}}},
		"Peers[0].Address":       {Site: "east", StoreDirectory: "/nonexistent", Identity: id, Peers: []Peer{{Site: "w", Dial: DialAlways}}},
		"Listen: port":           {Site: "east", StoreDirectory: t.TempDir(), Identity: id, LocalListen: "127.0.0.1:0", Listen: "127.0.0.1:x"},
		"LocalListen: ":          {Site: "east", StoreDirectory: t.TempDir(), LocalListen: "nowhere"},
		"address already in use": {Site: "east", StoreDirectory: t.TempDir(), LocalListen: newSite(t, "taken").config.LocalListen},
	} {
		config.Logger = quiet()
		server, err := StartServer(testContext(t), config)
		if err == nil {
			server.Close()
		}
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("error %v does not say %q", err, field)
		}
	}
}
