package bus

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNotEnrolled reports that a site has no certificate yet.
var ErrNotEnrolled = errors.New("bus: site not enrolled")

// Identity proves a site to other sites and names whom it trusts.
type Identity struct {
	// Site is the name in the certificate.
	Site string
	// Certificate is the site's key pair and certificate.
	Certificate tls.Certificate
	// Authorities are those whose certificates this site believes.
	Authorities *x509.CertPool
}

// Files of an identity's directory.
const (
	keyFile         = "site.key"
	certificateFile = "site.crt"
	authorityFile   = "authority.crt"
)

// siteDomain ends the DNS name in every site's certificate.
const siteDomain = ".site.switchboard.internal"

// LoadIdentity reads what Enrol or Authority.EnrolSite stored; ErrNotEnrolled if they never ran there.
func LoadIdentity(directory string) (*Identity, error) {
	certificate, err := tls.LoadX509KeyPair(filepath.Join(directory, certificateFile), filepath.Join(directory, keyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: %s has no certificate; enrol the site with a token", ErrNotEnrolled, directory)
	}
	if err != nil {
		return nil, fmt.Errorf("bus: identity in %s: %w", directory, err)
	}
	authority, err := os.ReadFile(filepath.Join(directory, authorityFile))
	if err != nil {
		return nil, fmt.Errorf("bus: identity in %s: %w", directory, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("bus: identity in %s: %s has no certificate", directory, authorityFile)
	}
	site, err := certifiedSite(certificate.Leaf)
	if err != nil {
		return nil, fmt.Errorf("bus: identity in %s: %w", directory, err)
	}
	return &Identity{Site: site, Certificate: certificate, Authorities: pool}, nil
}

// certifiedSite is the site that a certificate speaks for.
func certifiedSite(certificate *x509.Certificate) (string, error) {
	if len(certificate.DNSNames) != 1 {
		return "", fmt.Errorf("certificate has %d DNS names, a site's has one", len(certificate.DNSNames))
	}
	site, ok := strings.CutSuffix(certificate.DNSNames[0], siteDomain)
	if !ok {
		return "", fmt.Errorf("certificate is for %q, not for a site", certificate.DNSNames[0])
	}
	return site, validSite(site)
}

// siteKey reads the site's private key or makes it at the first start. It never leaves the directory.
func siteKey(directory string) (ed25519.PrivateKey, error) {
	path := filepath.Join(directory, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("bus: site key: %w", err)
		}
		return key, storeKey(path, key)
	}
	if err != nil {
		return nil, fmt.Errorf("bus: site key: %w", err)
	}
	return parseKey(path, text)
}

func storeKey(path string, key ed25519.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err == nil {
		err = writePrivate(path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	}
	if err != nil {
		return fmt.Errorf("bus: store key: %w", err)
	}
	return nil
}

func parseKey(path string, text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("bus: key %s is not PEM", path)
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("bus: key %s: %w", path, err)
	}
	private, ok := key.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("bus: key %s is %T, not Ed25519", path, key)
	}
	return private, nil
}

// certificateRequest is a site's request for a certificate on its key, in DER.
func certificateRequest(directory, site string) ([]byte, error) {
	if err := validSite(site); err != nil {
		return nil, err
	}
	key, err := siteKey(directory)
	if err != nil {
		return nil, err
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: site},
		DNSNames: []string{site + siteDomain},
	}, key)
	if err != nil {
		return nil, fmt.Errorf("bus: certificate request: %w", err)
	}
	return request, nil
}

// storeCertificates completes an identity's directory; the site's own certificate, which makes it one, comes last.
func storeCertificates(directory string, certificate, authority []byte) (*Identity, error) {
	for _, file := range []struct {
		name string
		der  []byte
	}{{authorityFile, authority}, {certificateFile, certificate}} {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: file.der})
		if err := writePrivate(filepath.Join(directory, file.name), text); err != nil {
			return nil, fmt.Errorf("bus: store certificate: %w", err)
		}
	}
	return LoadIdentity(directory)
}

// serverTLS and clientTLS are the two ends of a link: version 1.3, both sides proven by the authority.
func (id *Identity) serverTLS() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.Certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    id.Authorities,
	}
}

func (id *Identity) clientTLS(peer string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.Certificate},
		RootCAs:      id.Authorities,
		ServerName:   peer + siteDomain,
	}
}
