package main

import (
	"bufio"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestTLS serves with certificates on both sides: bytes over gRPC and HTTP,
// the user bound to the certificate, and strangers kept out.
func TestTLS(t *testing.T) {
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := env.Certificate(t, dir, "server")
	me, err := user.Current() // the superuser of a new namespace
	if err != nil {
		t.Fatal(err)
	}
	mine, mineKey := env.Certificate(t, dir, me.Username)
	theirs, theirKey := env.Certificate(t, dir, "bob")
	known := filepath.Join(dir, "clients.pem")
	var all []byte
	for _, file := range []string{mine, theirs} {
		pem, err := os.ReadFile(file) //nolint:gosec // the test's own
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, pem...)
	}
	if err := os.WriteFile(known, all, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "namenode", "--data", filepath.Join(dir, "data"), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", //nolint:gosec // the test binary
		"--tls-cert", cert, "--tls-key", key, "--tls-client-ca", known, "--log-level", "error")
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
	at := []string{"--namenode", addr, "--timeout", "5s", "--tls-ca", cert}
	as, asBob := append(at[:6:6], "--tls-cert", mine, "--tls-key", mineKey), append(at[:6:6], "--tls-cert", theirs, "--tls-key", theirKey)
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
	run(0, append(as, "--user", "bob", "ls", "/")...) // a superuser may act for everybody
	run(0, append(asBob, "ls", "/")...)
	run(fserror.ExitPermission, append(asBob, "--user", me.Username, "ls", "/")...)
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
