package proof

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// UserOf returns the user that a certificate names: its SPIFFE ID, whole, if it has one,
// else its common name. A certificate that names nobody, or several, is an error.
func UserOf(c *x509.Certificate) (string, error) {
	var id string
	for _, uri := range c.URIs {
		if uri.Scheme != "spiffe" {
			continue
		}
		if id != "" {
			return "", fserror.New(fserror.Permission, "", "", "the certificate names several SPIFFE IDs; get one that names one")
		}
		id = uri.String()
	}
	if id == "" {
		id = c.Subject.CommonName
	}
	if id == "" {
		return "", fserror.New(fserror.Permission, "", "", "the certificate names no user; get one with a common name or a SPIFFE ID")
	}
	return id, nil
}

// OpenPair reads a certificate, with those that lead to its authority, and its key.
func OpenPair(c clock.Clock, cert, key string) (*File[*tls.Certificate], error) {
	return Open(c, func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		if err != nil {
			return nil, &fserror.Error{Op: "load certificate", Path: cert, Kind: fserror.InvalidArgument, Err: err}
		}
		return &pair, nil
	}, cert, key)
}

// Authorities are who signs certificates, and which of those they have revoked.
type Authorities struct {
	Pool    *x509.CertPool
	own     []*x509.Certificate
	revoked map[string]bool // by certificateKey
	overdue time.Time       // when the oldest list of revocations should have been replaced; zero: there is none
}

// OpenAuthorities reads certificates of authorities, and if crl is not empty their lists of
// revoked certificates, both in PEM.
func OpenAuthorities(c clock.Clock, ca, crl string) (*File[*Authorities], error) {
	names := []string{ca}
	if crl != "" {
		names = append(names, crl)
	}
	return Open(c, func(contents [][]byte) (*Authorities, error) {
		a := &Authorities{Pool: x509.NewCertPool(), revoked: map[string]bool{}}
		for der, err := range blocks(contents[0], "CERTIFICATE") {
			if err != nil {
				return nil, fserror.New(fserror.InvalidArgument, "read certificates", ca, "%v", err)
			}
			cert, err := x509.ParseCertificate(der)
			if err != nil {
				return nil, &fserror.Error{Op: "read certificates", Path: ca, Kind: fserror.InvalidArgument, Err: err}
			}
			a.own = append(a.own, cert)
			a.Pool.AddCert(cert)
		}
		if len(a.own) == 0 {
			return nil, fserror.New(fserror.InvalidArgument, "read certificates", ca, "there is no PEM certificate in it")
		}
		if crl == "" {
			return a, nil
		}
		return a, a.revoke(crl, contents[1])
	}, names...)
}

// revoke takes a file of lists of revoked certificates, each signed by one of the authorities.
func (a *Authorities) revoke(name string, content []byte) error {
	const op = "read revoked certificates"
	lists := 0
	for der, err := range blocks(content, "X509 CRL") {
		if err != nil {
			return fserror.New(fserror.InvalidArgument, op, name, "%v", err)
		}
		list, err := x509.ParseRevocationList(der)
		if err != nil {
			return &fserror.Error{Op: op, Path: name, Kind: fserror.InvalidArgument, Err: err}
		}
		signed := false
		for _, c := range a.own {
			signed = signed || bytes.Equal(c.RawSubject, list.RawIssuer) && list.CheckSignatureFrom(c) == nil
		}
		if !signed {
			return fserror.New(fserror.InvalidArgument, op, name, "the list of %q is signed by none of the authorities", list.Issuer)
		}
		for _, e := range list.RevokedCertificateEntries {
			a.revoked[certificateKey(list.RawIssuer, e.SerialNumber.Bytes())] = true
		}
		if !list.NextUpdate.IsZero() && (a.overdue.IsZero() || list.NextUpdate.Before(a.overdue)) {
			a.overdue = list.NextUpdate
		}
		lists++
	}
	if lists == 0 {
		return fserror.New(fserror.InvalidArgument, op, name, "there is no PEM list of revoked certificates in it")
	}
	return nil
}

func certificateKey(issuer, serial []byte) string { return string(issuer) + "\x00" + string(serial) }

// blocks are the PEM blocks of a type; an error tells that one cannot be read.
func blocks(content []byte, typ string) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		whole := bytes.Count(content, []byte("-----BEGIN "+typ+"-----"))
		for b, rest := pem.Decode(content); b != nil; b, rest = pem.Decode(rest) {
			if b.Type != typ {
				continue
			}
			whole--
			if !yield(b.Bytes, nil) {
				return
			}
		}
		if whole != 0 {
			yield(nil, fmt.Errorf("a PEM %s in it cannot be read: is the file complete?", typ))
		}
	}
}

// Verify returns until when a client's certificate is good, if it is at that time: it is
// signed by one of the authorities, over those shown with it, and none of them is revoked.
func (a *Authorities) Verify(shown []*x509.Certificate, at time.Time) (until time.Time, err error) {
	if len(shown) == 0 {
		return until, fserror.New(fserror.Permission, "", "", "no certificate was shown")
	}
	between := x509.NewCertPool()
	for _, c := range shown[1:] {
		between.AddCert(c)
	}
	chains, err := shown[0].Verify(x509.VerifyOptions{
		Roots: a.Pool, Intermediates: between, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return until, fserror.New(fserror.Permission, "", "", "the client's certificate is not good: %v", err)
	}
	for _, chain := range chains {
		if a.revokedIn(chain) {
			continue
		}
		if end := slices.MinFunc(chain, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) }).NotAfter; end.After(until) {
			until = end
		}
	}
	if until.IsZero() {
		return until, fserror.New(fserror.Permission, "", "", "the client's certificate was revoked")
	}
	return until, nil
}

func (a *Authorities) revokedIn(chain []*x509.Certificate) bool {
	for _, c := range chain {
		if a.revoked[certificateKey(c.RawIssuer, c.SerialNumber.Bytes())] {
			return true
		}
	}
	return false
}

// Overdue reports whether there is a newer list of revoked certificates than those read.
func (a *Authorities) Overdue(at time.Time) bool { return !a.overdue.IsZero() && at.After(a.overdue) }

// ServerTLS is how a server shows its certificate, as its files say at each handshake. If
// clients is not nil, clients show theirs: must is whether they have to.
func ServerTLS(pair *File[*tls.Certificate], clients *File[*Authorities], must bool) *tls.Config {
	now := func(*tls.ClientHelloInfo) (*tls.Config, error) {
		cfg := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*pair.Get()}}
		if clients != nil {
			cfg.ClientCAs, cfg.ClientAuth = clients.Get().Pool, tls.VerifyClientCertIfGiven
			if must {
				cfg.ClientAuth = tls.RequireAndVerifyClientCert
			}
			// A session that is resumed shows no certificate: each connection is to.
			cfg.SessionTicketsDisabled = true
		}
		return cfg, nil
	}
	cfg, _ := now(nil) // there is no error
	cfg.GetConfigForClient = now
	return cfg
}

// ShowPair has a client show its certificate as its files say at each handshake. tell is
// told once of files that cannot be used any more; nil: nobody is.
func ShowPair(cfg *tls.Config, pair *File[*tls.Certificate], tell func(error)) {
	cfg.Certificates = []tls.Certificate{*pair.Get()} // whose name counts, for who looks
	cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if _, err := pair.Check(); err != nil && tell != nil {
			tell(err)
		}
		return pair.Get(), nil
	}
}
