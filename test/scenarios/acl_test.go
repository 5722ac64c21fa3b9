package scenarios_test

import (
	"io/fs"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// An ACL gives rights, is inherited instead of the umask, goes with copies, and a change of
// it is seen by who has cached it.
func TestACLs(t *testing.T) {
	t.Parallel()
	n, _ := frozen(t)
	umask := fs.FileMode(0o077)
	owner := n.Client(t, env.Named("owner"), func(c *client.Config) { c.Umask = &umask })
	bob := n.Client(t, env.Named("bob"), caching, func(c *client.Config) { c.User = "bob" })
	ctx := t.Context()
	list := func(path string) string {
		t.Helper()
		a, err := owner.Xattrs(path).ACL(ctx)
		must(t, err)
		return a.String()
	}
	parse := func(text string) client.ACL {
		t.Helper()
		a, err := client.ParseACL(text)
		must(t, err)
		return a
	}
	must(t, lowlevel.Of(owner).MkdirMasked(ctx, "/d", 0o777, umask, false))
	if got := list("/d"); got != "user::rwx,group::---,other::---" {
		t.Fatalf("/d has %s", got)
	}
	_, err := bob.Stat(ctx, "/d/none")
	wantKind(t, err, fserror.Permission)
	const entries = "user::rwx,user:bob:rwx,group::---,mask::rwx,other::---"
	must(t, owner.Xattrs("/d").SetACL(ctx, append(parse(entries), parse(entries).AsDefault()...)))
	_, err = bob.Stat(ctx, "/d/none")
	wantKind(t, err, fserror.NotFound)

	must(t, owner.WriteFile(ctx, "/d/f", []byte("x")))
	if got := list("/d/f"); got != "user::rw-,user:bob:rwx,group::---,mask::rw-,other::---" {
		t.Fatalf("/d/f has %s", got)
	}
	must(t, lowlevel.Of(owner).MkdirMasked(ctx, "/d/e", 0o777, umask, false))
	if i, err := owner.Stat(ctx, "/d/e"); err != nil || !i.HasACL || !i.HasDefault || i.Mode().Perm() != 0o770 {
		t.Fatalf("/d/e is %v, %+v, %v", i, i, err)
	}
	must(t, bob.WriteFile(ctx, "/d/f", []byte("bob's"), client.WithOverwrite()))

	must(t, owner.Mkdir(ctx, "/plain", 0o777))
	must(t, transfer.Copy(ctx, owner, "/d/f", "/plain/copy", false))
	if got, want := list("/plain/copy"), list("/d/f"); got != want {
		t.Fatalf("the copy has %s, not %s", got, want)
	}
	read := func() error { _, err := bob.ReadFile(ctx, "/plain/copy"); return err }
	must(t, read())
	must(t, owner.Xattrs("/plain/copy").ChangeACL(ctx, client.ACLChange{Action: client.ACLModify, Entries: parse("u::rw,g::-,o::-,u:bob:-,m::rw")}))
	wantKind(t, read(), fserror.Permission)
	must(t, owner.Xattrs("/plain/copy").ChangeACL(ctx, client.ACLChange{Action: client.ACLRemoveAll}))
	if i, err := owner.Stat(ctx, "/plain/copy"); err != nil || i.HasACL {
		t.Fatalf("%+v, %v", i, err)
	}
	wantKind(t, bob.Xattrs("/plain/copy").ChangeACL(ctx, client.ACLChange{Action: client.ACLRemoveAll}), fserror.Permission)
	if _, err := bob.Xattrs("/plain/copy").ACL(ctx); err != nil {
		t.Fatalf("who may not read a file may see who may: %v", err)
	}
}
