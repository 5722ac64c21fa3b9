package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// TestGateway runs the command: it tells its address, serves, and ends by a signal.
func TestGateway(t *testing.T) {
	n := env.Start(t)
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "gateway", "--namenode", n.Addr(), "--webhdfs", "127.0.0.1:0", "--doas", "a", "--doas", "b", "--log-level", "error") //nolint:gosec // the test binary
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready 127.0.0.1:") {
		t.Fatalf("%q, %v", line, err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+strings.Fields(line)[1]+"/webhdfs/v1/a/b?op=MKDIRS&user.name=b&doas=root", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || string(body) != "{\"boolean\":true}\n" {
		t.Errorf("%s, %v", body, err)
	}
	if _, err := n.Client(t).Stat(t.Context(), "/a/b"); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("gateway: %v", err)
	}
	code, _, stderr := result(t, "gateway", "--webhdfs", "0.0.0.0:0")
	if code != fserror.ExitUsage || !strings.Contains(stderr, "--insecure-trust-clients") {
		t.Errorf("an address that others reach: %d, %s", code, stderr)
	}
}
