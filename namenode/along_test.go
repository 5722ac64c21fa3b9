package namenode_test

import (
	"bytes"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// TestXattrsComeAlong: the extended attribute that a client wants comes with all attributes of
// what it may read, is the current one, and takes no call of its own.
func TestXattrsComeAlong(t *testing.T) {
	t.Run("cached", func(t *testing.T) { xattrsComeAlong(t, true) })
	t.Run("asked", func(t *testing.T) { xattrsComeAlong(t, false) })
}

func xattrsComeAlong(t *testing.T, cached bool) {
	t.Helper()
	n := env.Start(t)
	root := n.Client(t)
	wants := func(user string) *client.FS {
		return n.Client(t, func(c *client.Config) { c.User, c.Xattr, c.Cache = user, "user.a", cached })
	}
	ann, bob := wants("ann"), wants("bob")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set := func(path, name, value string) {
		t.Helper()
		must(root.Xattrs(path).Set(t.Context(), name, []byte(value), client.XattrAny))
	}
	must(root.Mkdir(t.Context(), "/d", 0o755))
	for _, name := range []string{"/d/has", "/d/none", "/d/other"} {
		must(root.WriteFile(t.Context(), name, []byte("content")))
	}
	set("/d/has", "user.a", "one")
	set("/d/has", "user.b", "two")
	set("/d/other", "user.b", "two")
	must(root.Chown(t.Context(), "/d/has", "ann", ""))

	// along holds what a client gets with the attributes of /d/has, by each way to get them.
	along := func(who *client.FS, want string) {
		t.Helper()
		got := map[string][]byte{}
		i, err := who.Stat(t.Context(), "/d/has")
		must(err)
		got["stat"] = i.Xattr
		i, _, err = lowlevel.Of(who).LstatKept(t.Context(), lowlevel.Inode(i.Inode))
		must(err)
		got["stat by inode"] = i.Xattr
		list, err := who.ReadDir(t.Context(), "/d")
		must(err)
		for _, i := range list {
			if i.Name() == "has" {
				got["list"] = i.Xattr
			} else if i.Xattr != nil {
				t.Errorf("%s comes with %q", i.Path, i.Xattr)
			}
		}
		for by, value := range got {
			if !bytes.Equal(value, []byte(want)) {
				t.Errorf("%s: %q, want %q", by, value, want)
			}
		}
	}
	for range 2 { // the second time from the cache
		along(ann, "one")
		along(bob, "one")
		along(root, "") // it wants none
	}
	set("/d/has", "user.a", "three")
	along(ann, "three")
	along(bob, "three")
	must(root.Chmod(t.Context(), "/d/has", 0o600))
	along(ann, "three")
	along(bob, "")
	must(root.Chmod(t.Context(), "/d/has", 0o644))
	along(bob, "three")
	r, err := bob.Open(t.Context(), "/d/has")
	must(err)
	defer func() { _ = r.Close() }()
	if i, err := r.Stat(); err != nil || string(i.Xattr) != "three" {
		t.Errorf("a reader: %q, %v", i.Xattr, err)
	}
	must(root.Xattrs("/d/has").Remove(t.Context(), "user.a"))
	along(ann, "")
}
