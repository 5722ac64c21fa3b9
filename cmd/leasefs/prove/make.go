package prove

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Token makes a token, puts the user and it into a new file that only its owner may read,
// and returns the line that a namenode needs to know it.
func Token(file, user string, groups []string) (line string, err error) {
	token := proof.NewToken()
	if line, err = proof.Line(token, user, groups...); err != nil {
		return "", err
	}
	return line, create(file, []byte(user+" "+token+"\n"), 0o600)
}

// The files of an authority, in its folder.
const (
	caCert = "ca.pem"
	caKey  = "ca.key"
	caList = "ca.crl"
)

// Authority makes a new authority with its files in a folder, which is made if it is missing,
// and an empty list of revoked certificates.
func Authority(dir, name string, now time.Time, life time.Duration) (cert string, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", local(dir, err)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	cert = filepath.Join(dir, caCert)
	if err := issue(template, nil, now, life, cert, filepath.Join(dir, caKey)); err != nil {
		return cert, err
	}
	_, err = Revoke(dir, "", now)
	return cert, err
}

// Revoke adds a certificate in a file, signed by the authority in a folder, to the
// authority's list of revoked ones; "" adds none. The new list takes the place of the old
// one in one step. It is in force for as long as the authority is.
func Revoke(dir, file string, now time.Time) (list string, err error) {
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, caCert), filepath.Join(dir, caKey))
	if err != nil {
		return "", local(dir, err)
	}
	list = filepath.Join(dir, caList)
	next := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: now.Add(-5 * time.Minute), NextUpdate: ca.Leaf.NotAfter}
	old, err := os.ReadFile(list) //nolint:gosec // the user names the folder
	switch {
	case err == nil:
		l, err := readList(list, old)
		if err == nil {
			err = l.CheckSignatureFrom(ca.Leaf)
		}
		if err != nil {
			return "", local(list, err)
		}
		next.RevokedCertificateEntries = l.RevokedCertificateEntries
		if l.Number != nil {
			next.Number.Add(next.Number, l.Number)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return "", local(list, err)
	}
	if file != "" {
		cert, err := readCertificate(file)
		if err == nil {
			err = cert.CheckSignatureFrom(ca.Leaf)
		}
		if err != nil {
			return "", local(file, err)
		}
		if slices.ContainsFunc(next.RevokedCertificateEntries, func(e x509.RevocationListEntry) bool { return e.SerialNumber.Cmp(cert.SerialNumber) == 0 }) {
			return list, nil
		}
		next.RevokedCertificateEntries = append(next.RevokedCertificateEntries, x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: now})
	}
	key, ok := ca.PrivateKey.(crypto.Signer)
	if !ok {
		return "", fserror.New(fserror.InvalidArgument, "", dir, "the authority's key cannot sign")
	}
	der, err := x509.CreateRevocationList(rand.Reader, next, ca.Leaf, key)
	if err != nil {
		return "", err
	}
	fresh := list + ".new" // one that a crash left is of no use
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", local(fresh, err)
	}
	if err := create(fresh, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), 0o644); err != nil {
		return "", err
	}
	if err := vfs.Install(fresh, list); err != nil {
		return "", local(list, err)
	}
	return list, nil
}

func readList(name string, content []byte) (*x509.RevocationList, error) {
	b, _ := pem.Decode(content)
	if b == nil || b.Type != "X509 CRL" {
		return nil, fserror.New(fserror.InvalidArgument, "", name, "it is no list of revoked certificates in PEM")
	}
	return x509.ParseRevocationList(b.Bytes)
}

func readCertificate(name string) (*x509.Certificate, error) {
	content, err := os.ReadFile(name) //nolint:gosec // the user names it
	if err != nil {
		return nil, err
	}
	b, _ := pem.Decode(content)
	if b == nil || b.Type != "CERTIFICATE" {
		return nil, fserror.New(fserror.InvalidArgument, "", name, "it is no certificate in PEM")
	}
	return x509.ParseCertificate(b.Bytes)
}

// Certificate makes a certificate that an authority in a folder has signed: of a client,
// whose user is the name, or if there are hosts (names or IP addresses) of a server at them.
// It is put into NAME.pem in the folder out, and its key into NAME.key.
func Certificate(dir, name string, hosts []string, now time.Time, life time.Duration, out string) (cert, key string, err error) {
	ca, err := tls.LoadX509KeyPair(filepath.Join(dir, caCert), filepath.Join(dir, caKey))
	if err != nil {
		return "", "", local(dir, err)
	}
	if name == "" || filepath.Base(name) != name || len(name) > 64 { // of a common name
		return "", "", fserror.New(fserror.InvalidArgument, "", "", "%q cannot be the name of a certificate and its file: choose one of 1 to 64 bytes, without a slash", name)
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
		// A server's certificate is no proof that somebody is a user.
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	cert, key = filepath.Join(out, name+".pem"), filepath.Join(out, name+".key")
	return cert, key, issue(template, &ca, now, life, cert, key)
}

// issue signs a certificate and writes it and its key to new files; by nil signs itself.
func issue(template *x509.Certificate, by *tls.Certificate, now time.Time, life time.Duration, certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	// Clocks differ: it is good a little before it is made.
	template.SerialNumber, template.NotBefore, template.NotAfter = serial, now.Add(-5*time.Minute), now.Add(life)
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
		if template.NotAfter.After(parent.NotAfter) {
			return fserror.New(fserror.InvalidArgument, "", "", "the authority ends on %s, before the certificate would: choose a shorter life, or make a new authority", parent.NotAfter.Format(time.DateOnly))
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return err
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := create(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs}), 0o600); err != nil {
		return err
	}
	err = create(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644)
	if err != nil {
		err = errors.Join(err, os.Remove(keyFile)) // a key without a certificate would be in the way of the next try
	}
	return err
}

// create writes a file that must be new.
func create(name string, content []byte, mode fs.FileMode) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the user names it
	if err != nil {
		return local(name, err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(name)
			err = local(name, err)
		}
	}()
	if _, err := f.Write(content); err != nil {
		return err
	}
	return f.Sync()
}

func local(name string, err error) error {
	kind := fserror.InvalidArgument
	switch {
	case errors.Is(err, fs.ErrExist):
		return &fserror.Error{Kind: fserror.Exists, Path: name, Message: "there is such a file: choose another name, or remove it first"}
	case errors.Is(err, fs.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = fserror.Permission
	}
	var fe *fserror.Error
	if errors.As(err, &fe) {
		return err
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		name, err = pe.Path, pe.Err
	}
	return &fserror.Error{Kind: kind, Path: name, Err: fmt.Errorf("%w", err)}
}
