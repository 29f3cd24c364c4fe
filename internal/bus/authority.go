package bus

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ErrTokenRefused reports an enrolment token that is unknown, used, expired or for another site.
var ErrTokenRefused = errors.New("bus: enrolment token refused")

const (
	authorityKeyFile    = "authority.key"
	authorityTokensFile = "tokens.json"
	authorityLockFile   = "tokens.lock"
	certificateLife     = 10 * 365 * 24 * time.Hour
	// clockSkew is how far apart the clocks of sites may be.
	clockSkew = time.Hour
)

// Authority is the platform's certificate authority: it says, once per token, which key is which site.
type Authority struct {
	// CertificateLife is how long certificates hold that it makes from now on; 0 means ten years.
	CertificateLife time.Duration

	directory   string
	key         ed25519.PrivateKey
	certificate *x509.Certificate

	mu sync.Mutex // guards the tokens' file
}

// token is an admission not used yet, stored under the hash of its secret.
type token struct {
	Site    string    `json:"site"`
	Expires time.Time `json:"expires"`
}

// NewAuthority opens the authority in a directory, or makes one there. Its key is stored with mode 0600: whoever reads
// it can be any site.
func NewAuthority(directory string) (*Authority, error) {
	path := filepath.Join(directory, authorityKeyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeAuthority(directory)
	}
	if err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	key, err := parseKey(path, text)
	if err != nil {
		return nil, err
	}
	text, err = os.ReadFile(filepath.Join(directory, authorityFile))
	if err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("bus: authority: %s is not PEM", authorityFile)
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	return &Authority{directory: directory, key: key, certificate: certificate}, nil
}

func makeAuthority(directory string) (*Authority, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Switchboard authority"},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(2 * certificateLife),
		KeyUsage:              x509.KeyUsageCertSign,
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := writePrivate(filepath.Join(directory, authorityFile), text); err != nil {
		return nil, fmt.Errorf("bus: authority: %w", err)
	}
	// The key makes the authority, so it comes last: interrupted before it, the next start begins anew.
	if err := storeKey(filepath.Join(directory, authorityKeyFile), key); err != nil {
		return nil, err
	}
	return NewAuthority(directory)
}

// Token makes a one-time token with which a site of that name may enrol within the validity. It holds the authority's
// fingerprint, so that the site can tell the authority from an impostor.
func (a *Authority) Token(site string, validity time.Duration) (string, error) {
	if err := validSite(site); err != nil {
		return "", err
	}
	secret := newID() + newID()
	err := a.changeTokens(func(tokens map[string]token) error {
		tokens[hashed(secret)] = token{Site: site, Expires: time.Now().Add(validity).UTC()}
		return nil
	})
	if err != nil {
		return "", err
	}
	return secret + "." + fingerprint(a.certificate.Raw), nil
}

// Enrol spends a token: it returns a certificate, in DER, for the key in the certificate request and the token's site,
// and the authority's own. A request for another site's name leaves the token unspent.
func (a *Authority) Enrol(tokenText string, request []byte) (certificate, authority []byte, err error) {
	csr, err := x509.ParseCertificateRequest(request)
	if err == nil {
		err = csr.CheckSignature()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("bus: enrol: certificate request: %w", err)
	}
	secret, _, _ := strings.Cut(tokenText, ".")
	var site string
	err = a.changeTokens(func(tokens map[string]token) error {
		t, ok := tokens[hashed(secret)]
		switch {
		case !ok:
			return fmt.Errorf("%w: it is unknown or was used; make a new one", ErrTokenRefused)
		case time.Now().After(t.Expires):
			return fmt.Errorf("%w: it expired at %s; make a new one", ErrTokenRefused, t.Expires.Format(time.RFC3339))
		case csr.Subject.CommonName != t.Site:
			return fmt.Errorf("%w: it is for site %q, the request is for %q", ErrTokenRefused, t.Site, csr.Subject.CommonName)
		}
		site = t.Site
		delete(tokens, hashed(secret))
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	certificate, err = a.sign(site, site+siteDomain, csr.PublicKey)
	return certificate, a.certificate.Raw, err
}

// EnrolSite makes the identity of a site in a directory of this machine, or loads the one that is there.
func (a *Authority) EnrolSite(site, directory string) (*Identity, error) {
	id, err := LoadIdentity(directory)
	if err == nil && id.Site != site {
		return nil, fmt.Errorf("bus: enrol: %s is the identity of site %q, not %q", directory, id.Site, site)
	}
	if !errors.Is(err, ErrNotEnrolled) {
		return id, err
	}
	request, err := certificateRequest(directory, site)
	if err != nil {
		return nil, err
	}
	t, err := a.Token(site, time.Minute)
	if err != nil {
		return nil, err
	}
	certificate, authority, err := a.Enrol(t, request)
	if err != nil {
		return nil, err
	}
	return storeCertificates(directory, certificate, authority)
}

func (a *Authority) sign(name, domain string, key any) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{domain},
		NotBefore:             time.Now().Add(-clockSkew),
		NotAfter:              time.Now().Add(cmp.Or(a.CertificateLife, certificateLife)),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}, a.certificate, key, a.key)
	if err != nil {
		return nil, fmt.Errorf("bus: sign certificate: %w", err)
	}
	return der, nil
}

// changeTokens changes the tokens on disk, or nothing if the change fails. Expired ones go.
func (a *Authority) changeTokens(change func(map[string]token) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	unlock, err := lockFile(filepath.Join(a.directory, authorityLockFile)) // tokens are made by one process and spent by another
	if err != nil {
		return fmt.Errorf("bus: enrolment tokens: %w", err)
	}
	defer unlock()
	path := filepath.Join(a.directory, authorityTokensFile)
	tokens := map[string]token{}
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &tokens)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return fmt.Errorf("bus: enrolment tokens: %w", err)
	}
	if err := change(tokens); err != nil {
		return err
	}
	for hash, t := range tokens {
		if time.Now().After(t.Expires) {
			delete(tokens, hash)
		}
	}
	if err := writePrivate(path, indentedJSON(tokens)); err != nil {
		return fmt.Errorf("bus: enrolment tokens: %w", err)
	}
	return nil
}

// lockFile keeps other processes out until unlock.
func lockFile(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, err
	}
	return func() { file.Close() }, nil
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func fingerprint(certificate []byte) string {
	sum := sha256.Sum256(certificate)
	return hex.EncodeToString(sum[:])
}

func serial() *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		panic(err) // the system has no randomness
	}
	return n
}
