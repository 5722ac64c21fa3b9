package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestASignalEndsWhoReads: while the store is silent, a signal ends each command that reads, and
// copies leave nothing.
func TestASignalEndsWhoReads(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	n := env.Start(t)
	f := n.Client(t)
	if err := f.WriteFile(t.Context(), "/big", bytes.Repeat([]byte("line\n"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(silent.Close)
	n.Restart(t, func(c *namenode.Config) { c.AdvertiseHTTP = silent.Listener.Addr().String() })
	dir := t.TempDir()
	for _, args := range []string{"cat /big", "head /big", "head -c 5 /big", "tail /big", "tail -c 5 /big", "get /big " + dir, "cp /big /copy"} {
		cmd := exec.CommandContext(t.Context(), path, strings.Fields(args)...) //nolint:gosec // the test binary
		cmd.Env = append(os.Environ(), "LEASEFS_NAMENODE="+n.Addr(), "LEASEFS_TIMEOUT=1m")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // its exit code tells
			close(ended)
		}()
		select {
		case <-asked:
			_ = cmd.Process.Signal(syscall.SIGINT) // its end tells
			<-ended
		case <-ended:
			t.Errorf("%s: ended without a read: %s", args, stderr.String())
		}
		if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.HasSuffix(stderr.String(), "interrupted\n") {
			t.Errorf("%s: exit code %d, %s", args, code, stderr.String())
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("get left %v, %v", left, err)
	}
	if left, err := f.ReadDir(t.Context(), "/"); err != nil || len(left) != 1 {
		t.Errorf("cp left %v, %v", left, err)
	}
}
