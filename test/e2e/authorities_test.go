package e2e_test

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestAuthoritiesAreReadAgain: while a namenode runs, its file of authorities becomes that of another
// one: who has a certificate of that one enters, and of the one that is gone, nobody does, and
// what he watches ends. A client that runs follows its own file, too, and finds the
// namenode again when that has a certificate of the other authority.
func TestAuthoritiesAreReadAgain(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	me, err := user.Current() // the superuser of a new namespace
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	in := func(elem ...string) string { return filepath.Join(append([]string{dir}, elem...)...) }
	for _, ca := range []string{"old", "new"} {
		for _, argv := range [][]string{{"."}, {"--host", "127.0.0.1", ".", "nn"}, {".", ca + "user"}, {".", me.Username}} {
			if err := os.MkdirAll(in(ca), 0o700); err != nil {
				t.Fatal(err)
			}
			start(ctx, t, spec{argv: append([]string{"env", "-C", in(ca), leasefs, "admin", "ca"}, argv...)}).ends(ctx, 0)
		}
	}
	put := func(to string, from ...string) { // in one step
		t.Helper()
		var all []byte
		for _, name := range from {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, b...)
		}
		err := os.WriteFile(to+".next", all, 0o600)
		if err == nil {
			err = os.Rename(to+".next", to)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	put(in("clients.pem"), in("old", "ca.pem"))
	put(in("servers.pem"), in("old", "ca.pem"))
	put(in("nn.pem"), in("old", "nn.pem"))
	put(in("nn.key"), in("old", "nn.key"))
	n := startNamenode(ctx, t, "--tls-cert", in("nn.pem"), "--tls-key", in("nn.key"), "--tls-client-ca", in("clients.pem"))
	as := func(ca, name string, argv ...string) []string {
		return append([]string{"--tls-ca", in("servers.pem"), "--tls-cert", in(ca, name+".pem"), "--tls-key", in(ca, name+".key"), "--timeout", "20s"}, argv...)
	}
	made := 0
	// sees makes directories until a watch tells of one.
	sees := func(watch *process, ca string) {
		t.Helper()
		before := len(watch.out.String())
		eventually(ctx, t, "a watch tells of what is made", func() bool {
			made++
			n.run(ctx, as(ca, me.Username, "mkdir", fmt.Sprintf("/d%d", made))...)
			return len(watch.out.String()) > before
		})
	}
	gone := n.begin(ctx, nil, as("old", "olduser", "watch", "-r", "/")...)
	sees(gone, "old")
	turnedAway(ctx, t, n, as("new", "newuser", "--timeout", "1s", "ls", "/"))

	put(in("clients.pem"), in("new", "ca.pem"))
	eventually(ctx, t, "who has a certificate of the new authority is let in", func() bool {
		return n.try(ctx, "", as("new", "newuser", "ls", "/")...).code == 0
	})
	turnedAway(ctx, t, n, as("old", "olduser", "--timeout", "1s", "ls", "/"))
	if code := gone.wait(ctx); code != fserror.ExitPermission && code != fserror.ExitUnavailable {
		t.Errorf("the watch ended with exit code %d: %s", code, gone.err.String())
	}

	stays := n.begin(ctx, nil, as("new", "newuser", "--timeout", "60s", "watch", "-r", "/")...)
	sees(stays, "new")
	put(in("servers.pem"), in("new", "ca.pem"))
	put(in("nn.key"), in("new", "nn.key"))
	put(in("nn.pem"), in("new", "nn.pem"))
	n.crash(ctx)
	sees(stays, "new")
	stays.kill()
}

// turnedAway has a client turned away, by TLS or by the namenode.
func turnedAway(ctx context.Context, t *testing.T, n *namenode, argv []string) {
	t.Helper()
	r := n.try(ctx, "", argv...)
	if r.code != fserror.ExitPermission && r.code != fserror.ExitUnavailable {
		t.Errorf("%s: exit code %d: %s", strings.Join(argv, " "), r.code, r.err)
	}
}
