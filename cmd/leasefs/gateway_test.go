package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/colinmarc/hdfs/v2"

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

// TestGatewayHDFS runs the command for hdfs:// alone: an HDFS client writes and reads.
func TestGatewayHDFS(t *testing.T) {
	n := env.Start(t)
	path, err := exec.LookPath("leasefs")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "gateway", "--namenode", n.Addr(), "--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0", "--json", "--log-level", "error") //nolint:gosec // the test binary
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var at struct {
		Ready               bool
		HDFS, Data, WebHDFS string
	}
	if err := json.NewDecoder(out).Decode(&at); err != nil || !at.Ready || at.HDFS == "" || at.Data == "" || at.WebHDFS != "" {
		t.Fatalf("%+v, %v", at, err)
	}
	c, err := hdfs.NewClient(hdfs.ClientOptions{Addresses: []string{at.HDFS}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Create("/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("by HDFS")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if b, err := n.Client(t).ReadFile(t.Context(), "/f"); err != nil || string(b) != "by HDFS" {
		t.Errorf("%q, %v", b, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("gateway: %v", err)
	}
	for _, args := range [][]string{
		{"--hdfs", "0.0.0.0:0"}, {"--hdfs", "127.0.0.1:0", "--data", "0.0.0.0:0"}, {"--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0", "--open", "0"},
		{"--hdfs", "127.0.0.1:0", "--data", "127.0.0.1:0", "--advertise", "host"},
	} {
		if code, _, stderr := result(t, append([]string{"gateway", "--namenode", n.Addr()}, args...)...); code != fserror.ExitUsage {
			t.Errorf("%v: %d, %s", args, code, stderr)
		}
	}
}
