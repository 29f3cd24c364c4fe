package bus

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// enrolDomain is the name in the certificate of the authority's enrolment service; no site's certificate has it.
const enrolDomain = "enrol.switchboard.internal"

const (
	enrolPath          = "/enrol"
	maximumEnrolLength = 64 << 10
	enrolTimeout       = 30 * time.Second
)

type enrolRequest struct {
	Token   string `json:"token"`
	Request []byte `json:"request"` // certificate request, DER
}

type enrolReply struct {
	Certificate []byte `json:"certificate,omitempty"` // DER
	Authority   []byte `json:"authority,omitempty"`   // DER
	Error       string `json:"error,omitempty"`
}

// ServerTLS is the configuration with which the enrolment service must be served: its certificate is the authority's,
// whose fingerprint every token bears.
func (a *Authority) ServerTLS() (*tls.Config, error) {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("bus: enrolment service: %w", err)
	}
	der, err := a.sign("Switchboard enrolment", enrolDomain, public)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der, a.certificate.Raw}, PrivateKey: key}},
	}, nil
}

// Handler is the enrolment service: POST /enrol. Serve it with ServerTLS.
func (a *Authority) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+enrolPath, func(w http.ResponseWriter, r *http.Request) {
		var request enrolRequest
		var reply enrolReply
		status := http.StatusOK
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maximumEnrolLength)).Decode(&request)
		if err != nil {
			status = http.StatusBadRequest
		} else if reply.Certificate, reply.Authority, err = a.Enrol(request.Token, request.Request); err != nil {
			status = http.StatusForbidden
		}
		if err != nil {
			reply = enrolReply{Error: err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(reply) // a caller that has gone needs none
	})
	return mux
}

// Enrol makes a site's identity in a directory: a key made there, which never leaves it, and a certificate from the
// authority's enrolment service at an address (host:port) in exchange for a one-time token.
func Enrol(ctx context.Context, address, tokenText, site, directory string) (*Identity, error) {
	_, print, ok := strings.Cut(tokenText, ".")
	if !ok {
		return nil, fmt.Errorf("%w: it is not of the form <secret>.<fingerprint>", ErrTokenRefused)
	}
	request, err := certificateRequest(directory, site)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(enrolRequest{Token: tokenText, Request: request})
	if err != nil {
		return nil, fmt.Errorf("bus: enrol: %w", err)
	}
	reply, err := postEnrolment(ctx, address, print, body)
	if err != nil {
		return nil, err
	}
	if fingerprint(reply.Authority) != print {
		return nil, errors.New("bus: enrol: the authority's certificate is not the one that the token names")
	}
	return storeCertificates(directory, reply.Certificate, reply.Authority)
}

func postEnrolment(ctx context.Context, address, print string, body []byte) (enrolReply, error) {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: pinnedTLS(print)}}
	defer client.CloseIdleConnections()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+enrolPath, bytes.NewReader(body))
	if err != nil {
		return enrolReply{}, fmt.Errorf("bus: enrol: address %q: %w", address, err)
	}
	post.Header.Set("Content-Type", "application/json")
	response, err := client.Do(post)
	if err != nil {
		return enrolReply{}, fmt.Errorf("bus: enrol at %s: %w", address, err)
	}
	defer response.Body.Close()
	var reply enrolReply
	if err := json.NewDecoder(io.LimitReader(response.Body, maximumEnrolLength)).Decode(&reply); err != nil {
		return enrolReply{}, fmt.Errorf("bus: enrol at %s: status %s: %w", address, response.Status, err)
	}
	if reply.Error != "" {
		return enrolReply{}, fmt.Errorf("%w: %s", ErrTokenRefused, strings.TrimPrefix(reply.Error, ErrTokenRefused.Error()+": "))
	}
	return reply, nil
}

// pinnedTLS trusts the one authority with that fingerprint, which the service sends behind its own certificate.
func pinnedTLS(print string) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS13,
		ServerName:         enrolDomain,
		InsecureSkipVerify: true, // the pool of trusted roots is only known with the chain: verified below
		VerifyConnection: func(state tls.ConnectionState) error {
			for _, certificate := range state.PeerCertificates {
				if fingerprint(certificate.Raw) != print {
					continue
				}
				roots := x509.NewCertPool()
				roots.AddCert(certificate)
				_, err := state.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: roots, DNSName: enrolDomain})
				return err
			}
			return errors.New("the server is not the authority that the token names")
		},
	}
}
