package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/colinmarc/hdfs/v2"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

func fetched(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// serving runs a command until the test asks it to end, and decodes what it says when it is ready.
func serving(t *testing.T, ready any, args ...string) (end func()) {
	t.Helper()
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append(args, "--json", "--log-level", "error")...) //nolint:gosec // the test binary
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(out).Decode(ready); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestNamenodeWithGateway: one process is a namenode and serves clients of HDFS by both protocols.
func TestNamenodeWithGateway(t *testing.T) {
	var at struct{ Address, HDFS, Data, WebHDFS string }
	end := serving(t, &at, "namenode", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
		"--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0", "--webhdfs", "127.0.0.1:0")
	c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{at.HDFS}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Mkdir("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if code, body := fetched(t, "http://"+at.WebHDFS+"/webhdfs/v1/?op=LISTSTATUS&user.name=root"); code != http.StatusOK || !strings.Contains(body, `"pathSuffix":"d"`) {
		t.Errorf("%d: %s", code, body)
	}
	end()
	for _, args := range [][]string{
		{"--streams", "3"},
		{"--webhdfs", "0.0.0.0:0"},
		{"--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0", "--clients-keytab", "none"},
		{"--hdfs", "127.0.0.1:0", "--hdfs-data", "127.0.0.1:0", "--web-cert", "none"},
	} {
		args = append([]string{"namenode", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "error"}, args...)
		if code, _, stderr := result(t, args...); code != fserror.ExitUsage {
			t.Errorf("%v: %d, %s", args, code, stderr)
		}
	}
}

// TestGatewayPages: a gateway says whether it can serve, and counts what it is asked.
func TestGatewayPages(t *testing.T) {
	n := env.Start(t)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	var at struct{ WebHDFS, Pages string }
	end := serving(t, &at, "gateway", "--namenode", n.Addr(), "--webhdfs", "127.0.0.1:0", "--pages", "127.0.0.1:0", "--key", key)
	if code, body := fetched(t, "http://"+at.WebHDFS+"/webhdfs/v1/none?op=GETFILESTATUS&user.name=root"); code != http.StatusNotFound {
		t.Errorf("%d: %s", code, body)
	}
	for page, says := range map[string]string{
		"healthz": "ok", "readyz": "ok",
		"metrics": `leasefs_gateway_errors_total{error="java.io.FileNotFoundException",protocol="webhdfs"} 1`,
	} {
		if code, body := fetched(t, "http://"+at.Pages+"/"+page); code != http.StatusOK || !strings.Contains(body, says) {
			t.Errorf("/%s: %d, %s", page, code, body)
		}
	}
	end()
	for mode, content := range map[os.FileMode]string{0o644: strings.Repeat("k", 32), 0o600: "short"} {
		bad := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(bad, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if code, _, stderr := result(t, "gateway", "--namenode", n.Addr(), "--webhdfs", "127.0.0.1:0", "--key", bad); code == 0 || !strings.Contains(stderr, bad) {
			t.Errorf("a key of mode %o and %d bytes: %d, %s", mode, len(content), code, stderr)
		}
	}
}
