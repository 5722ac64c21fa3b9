package transfer_test

import (
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// TestCopyOntoItself: a file is not replaced by a copy of itself, which has less than it, whatever
// leads to it.
func TestCopyOntoItself(t *testing.T) {
	t.Parallel()
	f, ctx := env.Start(t).Client(t), t.Context()
	noError(t, f.Mkdir(ctx, "/d", 0o755))
	noError(t, f.WriteFile(ctx, "/d/a", []byte("x"), client.WithXattrs([]client.Xattr{{Name: "user.k", Value: []byte("v")}})))
	noError(t, f.Symlink(ctx, "d", "/link"))
	noError(t, f.Symlink(ctx, "d/a", "/a"))
	was, err := f.Stat(ctx, "/d/a")
	noError(t, err)
	for _, c := range [][2]string{{"/d/a", "/d/a"}, {"/d/a", "/d"}, {"/d/a", "/link"}, {"/link/a", "/d"}, {"/a", "/d"}, {"/d/a", "/a"}} {
		for _, overwrite := range []bool{false, true} {
			err := transfer.Copy(ctx, f, c[0], c[1], overwrite)
			if fserror.KindOf(err) != fserror.InvalidArgument {
				t.Errorf("%s to %s, overwrite %v: %v", c[0], c[1], overwrite, err)
			}
		}
	}
	if is, err := f.Stat(ctx, "/d/a"); err != nil || is.Inode != was.Inode {
		t.Errorf("it was replaced: %+v, %v", is, err)
	}
}
