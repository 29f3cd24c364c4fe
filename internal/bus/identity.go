package bus

import (
	"crypto/tls"
	"crypto/x509"
)

// Identity proves a site to other sites and names whom it trusts.
type Identity struct {
	// Site is the name in the certificate.
	Site string
	// Certificate is the site's key pair and certificate.
	Certificate tls.Certificate
	// Authorities are those whose certificates this site believes.
	Authorities *x509.CertPool
}
