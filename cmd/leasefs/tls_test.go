package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/fserror"
)

// writeCertificate makes a certificate for name, signed by itself, and returns
// the files of both.
func writeCertificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for file, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

// TestTLS serves with certificates on both sides: bytes over gRPC and HTTP,
// the user bound to the certificate, and strangers kept out.
func TestTLS(t *testing.T) {
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := writeCertificate(t, dir, "server")
	me, err := user.Current() // the superuser of a new namespace
	if err != nil {
		t.Fatal(err)
	}
	mine, mineKey := writeCertificate(t, dir, me.Username)
	cmd := exec.CommandContext(t.Context(), path, "namenode", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", //nolint:gosec // the test binary
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", mine, "--log-level", "error")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.Fields(line)[1]
	as := []string{"--namenode", addr, "--tls-ca", cert, "--tls-cert", mine, "--tls-key", mineKey, "--timeout", "5s"}
	run := func(want int, argv ...string) string {
		t.Helper()
		code, stdout, stderr := result(t, argv...)
		if code != want {
			t.Errorf("%s: code %d, want %d: %s", strings.Join(argv, " "), code, want, stderr)
		}
		return stdout
	}
	big := filepath.Join(dir, "big") // blocks go over HTTPS
	if err := os.WriteFile(big, []byte(strings.Repeat("0123456789abcdef", 200_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	run(0, append(as, "put", big, "/big")...)
	if got := run(0, append(as, "cat", "/big")...); len(got) != 3_200_000 {
		t.Errorf("%d bytes came back", len(got))
	}
	run(fserror.ExitPermission, append(as, "--user", "bob", "ls", "/")...)
	run(fserror.ExitUnavailable, "--namenode", addr, "--timeout", "500ms", "ls", "/")
	run(fserror.ExitUnavailable, "--namenode", addr, "--timeout", "500ms", "--tls-ca", cert, "ls", "/")
	run(fserror.ExitUnavailable, "--namenode", addr, "--timeout", "500ms", "--tls", "ls", "/")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("namenode: %v", err)
	}
}
