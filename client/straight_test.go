package client_test

import (
	"errors"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/test/env"
)

// Under WithoutLinks no call follows a link, whatever was kept of calls that did.
func TestWithoutLinks(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	fs := env.Start(t).Client(t, func(c *client.Config) { c.Cache = true })
	if err := errors.Join(fs.MkdirAll(ctx, "/real/dir", 0o755), fs.WriteFile(ctx, "/real/dir/f", []byte("1")),
		fs.Symlink(ctx, "/real", "/link"), fs.Symlink(ctx, "f", "/real/dir/alias")); err != nil {
		t.Fatal(err)
	}
	if i, err := lowlevel.Of(fs).Locate(ctx, lowlevel.At("/link/dir/alias")); err != nil || i.Path != "/real/dir/f" || i.Length != 1 {
		t.Errorf("it is located at %v, %v", i, err)
	}
	straight := client.WithoutLinks(ctx)
	for _, path := range []string{"/link/dir/f", "/real/dir/alias"} {
		for range 2 { // so that it is kept
			if _, err := fs.Stat(ctx, path); err != nil {
				t.Fatal(err)
			}
			if _, err := fs.ReadFile(ctx, path); err != nil {
				t.Fatal(err)
			}
		}
		_, serr := fs.Stat(straight, path)
		_, lerr := lowlevel.Of(fs).Locate(straight, lowlevel.At(path))
		_, rerr := fs.ReadFile(straight, path)
		_, aerr := fs.Append(straight, path)
		for call, err := range map[string]error{
			"stat": serr, "locate": lerr, "read": rerr, "append": aerr,
			"chmod": fs.Chmod(straight, path, 0o600), "setxattr": fs.Xattrs(path).Set(straight, "user.a", nil, client.XattrAny),
			"truncate": fs.Truncate(straight, path, 0), "overwrite": fs.WriteFile(straight, path, nil, client.WithOverwrite()),
		} {
			if !errors.Is(err, fserror.Loop) {
				t.Errorf("%s %s: %v", call, path, err)
			}
		}
	}
	// What is no link, and a link itself, can be worked with.
	if err := errors.Join(fs.Chmod(straight, "/real/dir/f", 0o600), fs.Rename(straight, "/real/dir/alias", "/alias", false), fs.Remove(straight, "/alias")); err != nil {
		t.Error(err)
	}
	if i, err := fs.Lstat(straight, "/link"); err != nil || i.LinkTarget != "/real" {
		t.Errorf("a link itself: %v, %v", i, err)
	}
}
