package e2e_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestUnfitSettings: a namenode does not wait for an ensemble that it can never
// reach with its settings, and says what is wrong; one that may come up later is
// waited for, with a word.
func TestUnfitSettings(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	launch := func(zookeeper, namespace string, flags ...string) *process {
		t.Helper()
		n := newNamenode(t, t.TempDir(), append([]string{"--blocks", "file://" + t.TempDir(), "--zookeeper", zookeeper, "--namespace", namespace}, flags...)...)
		return n.launch(ctx)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // of some other program
	if err != nil {
		t.Fatal(err)
	}
	answering := make(chan struct{})
	t.Cleanup(func() { _ = l.Close(); <-answering })
	go func() {
		defer close(answering)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
			_, _ = c.Read(make([]byte, 1))
			_ = c.Close()
		}
	}()
	other := l.Addr().String()

	for _, c := range []struct {
		zookeeper, namespace string
		flags                []string
		exit                 int
		says                 []string
	}{
		{"zk1:client", "ns", nil, fserror.ExitUsage, []string{"--zookeeper", `"zk1:client"`, "HOST:PORT"}},
		{"zk1:2181,zk2:2181/chroot", "ns", nil, fserror.ExitUsage, []string{"--zookeeper", `"zk2:2181/chroot"`, "HOST:PORT"}},
		{"zk1:2181 zk2:2181", "ns", nil, fserror.ExitUsage, []string{"commas"}},
		{"::1", "ns", nil, fserror.ExitUsage, []string{"brackets"}},
		{"zk1:2181,", "ns", nil, fserror.ExitUsage, []string{"empty"}},
		{"zk1:2181", "team/ns", nil, fserror.ExitUsage, []string{`"team/ns"`, "--namespace"}},
		{"zk1:2181", "..", nil, fserror.ExitUsage, []string{`".."`, "--namespace"}},
		{"zk1:2181", "ns", []string{"--session-timeout", "10ms"}, fserror.ExitUsage, []string{"--session-timeout", "10ms", "500ms"}},
		{"zk1:2181", "ns", []string{"--session-timeout", "1000h"}, fserror.ExitUsage, []string{"--session-timeout", "1000h", "1h"}},
		{"zk1:2181", "ns", []string{"--zookeeper-auth", "user:"}, fserror.ExitUsage, []string{"USER:PASSWORD"}},
		{"zk1:2181", "ns", []string{"--zookeeper-auth-also", "user:new"}, fserror.ExitUsage, []string{"--zookeeper-auth-also needs --zookeeper-auth"}},
		{other, "ns", nil, fserror.ExitUnavailable, []string{other, "not as a ZooKeeper server"}},
		{other, "ns", []string{"--zookeeper-tls"}, fserror.ExitUnavailable, []string{other, "TLS", "--zookeeper"}},
	} {
		p := launch(c.zookeeper, c.namespace, c.flags...)
		p.ends(ctx, c.exit)
		oneLine(t, behindLog(p.err.String()))
		names(t, p.err.String(), c.says...)
	}

	const down = "127.0.0.1:1" // where nobody listens
	p := launch(down, "ns")
	p.prints(ctx, p.err, "that it waits", func(s string) bool {
		return strings.Contains(s, "waiting for ZooKeeper") && strings.Contains(s, down) && strings.Contains(s, "refused")
	})
	p.kill()
	z := sharedZooKeeper(t)
	n := newNamenode(t, t.TempDir(), "--blocks", "file://"+t.TempDir(), "--zookeeper", strings.Join(z.Addrs(), ","), "--namespace", "unfit-settings", "--session-timeout", "2m")
	n.format(ctx)
	p = n.launch(ctx)
	p.prints(ctx, p.out, "ready", func(s string) bool { return strings.HasPrefix(s, "ready") })
	names(t, p.err.String(), "asked=2m0s", "granted=1m0s")
	p.kill()
}
