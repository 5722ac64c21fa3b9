package env

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. It is for one goroutine.
type Authority struct {
	File string // its own certificate

	t       testing.TB
	dir     string
	cert    *x509.Certificate
	key     *ecdsa.PrivateKey
	serial  int64
	revoked []x509.RevocationListEntry
}

// NewAuthority makes one, with its files in a folder.
func NewAuthority(t testing.TB, dir, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: dir, File: filepath.Join(dir, name+".ca.pem"), serial: 1}
	a.key = newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err == nil {
		a.cert, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	a.write(a.File, "CERTIFICATE", der)
	return a
}

// Issue makes a certificate of that common name that is good until a time, for servers at
// loopback addresses and for clients. It returns the PEM files of it and its key.
func (a *Authority) Issue(name string, until time.Time, uris ...*url.URL) (cert, key string) {
	a.t.Helper()
	k := newKey(a.t)
	a.serial++
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, URIs: uris,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost"},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &k.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, key = filepath.Join(a.dir, name+".crt.pem"), filepath.Join(a.dir, name+".key.pem")
	a.write(cert, "CERTIFICATE", der)
	a.write(key, "PRIVATE KEY", pkcs)
	return cert, key
}

// Pair is Issue for a certificate in memory.
func (a *Authority) Pair(name string, until time.Time, uris ...*url.URL) tls.Certificate {
	a.t.Helper()
	pair, err := tls.LoadX509KeyPair(a.Issue(name, until, uris...))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// Revoke writes the list of the certificates that were revoked so far, that one included
// unless it is nil, to a file.
func (a *Authority) Revoke(file string, c *x509.Certificate) {
	a.t.Helper()
	if c != nil {
		a.revoked = append(a.revoked, x509.RevocationListEntry{SerialNumber: c.SerialNumber, RevocationTime: time.Now()})
	}
	a.serial++
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(a.serial), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour), RevokedCertificateEntries: a.revoked,
	}, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(file, "X509 CRL", der)
}

// Pool is what trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

func (a *Authority) write(file, typ string, der []byte) {
	a.t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}
