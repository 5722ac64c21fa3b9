package scenarios_test

import (
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// An append that may create makes what a link without a target leads to, as open(2)
// does with O_CREAT; without that there is nothing to append to, and a create of the
// link's own name finds it taken.
func TestAppendThroughALinkWithoutATarget(t *testing.T) {
	t.Parallel()
	fs := env.Start(t).Client(t)
	ctx := t.Context()
	must(t, fs.MkdirAll(ctx, "/a", 0o755))
	must(t, fs.Symlink(ctx, "a/target", "/link"))
	_, err := fs.Append(ctx, "/link")
	wantKind(t, err, fserror.NotFound)
	_, err = fs.Create(ctx, "/link")
	wantKind(t, err, fserror.Exists)
	w, err := fs.Append(ctx, "/link", client.WithCreate())
	must(t, err)
	_, err = w.Write([]byte("text"))
	must(t, err)
	must(t, w.Close())
	wantContent(t, fs, "/a/target", "text")
	wantContent(t, fs, "/link", "text")
}
