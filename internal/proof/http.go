package proof

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// maxAnswer is how many bytes an answer of an issuer may have.
const maxAnswer = 1 << 20

// IssuerClient asks issuers of tokens: each answer is limited in size and time, and nothing
// is asked without TLS of who was reached with it. Roots sign their certificates; nil: the
// system's.
func IssuerClient(roots *x509.CertPool) *http.Client {
	t := &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		TLSHandshakeTimeout:    5 * time.Second,
		ResponseHeaderTimeout:  10 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		DisableKeepAlives:      true, // it is asked seldom
		ForceAttemptHTTP2:      true,
	}
	return &http.Client{
		Transport: Limited(sealed{t}), Timeout: 20 * time.Second,
		CheckRedirect: func(req *http.Request, via []*http.Request) error {
			switch {
			case len(via) > 5:
				return errors.New("it leads to ever other addresses")
			case req.URL.Scheme != "https" && via[0].URL.Scheme == "https":
				return fmt.Errorf("it leads to an address without TLS, %s", req.URL.Host)
			}
			return nil
		},
	}
}

// sealed asks nobody over a network without TLS: an issuer says itself where its keys and tokens are.
type sealed struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (s sealed) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" && !Loopback(r.URL.Hostname()) {
		if r.Body != nil {
			_ = r.Body.Close() // nothing was sent
		}
		return nil, fmt.Errorf("it names an address without TLS, %s", r.URL.Host)
	}
	return s.RoundTripper.RoundTrip(r)
}

// Limited is t with a limit on the bytes of an answer.
func Limited(t http.RoundTripper) http.RoundTripper { return limited{t} }

type limited struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = &limitedBody{resp.Body, maxAnswer}
	}
	return resp, err
}

type limitedBody struct {
	io.ReadCloser
	left int
}

func (b *limitedBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer has over %d bytes", maxAnswer)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// Loopback reports whether a host is this machine by an address that no network carries.
func Loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
