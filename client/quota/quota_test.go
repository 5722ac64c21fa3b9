package quota_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// show is what Above tells of a path.
func show(t *testing.T, fs *client.FS, path string) (text string) {
	t.Helper()
	list, err := quota.Above(t.Context(), fs, path)
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range list {
		text += fmt.Sprintf("%s %d/%d %d/%d ", q.Path, q.UsedNames, q.Names, q.UsedBytes, q.Bytes)
	}
	return strings.TrimSpace(text)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused is a call that exceeds a quota: of reason, in an error that says message.
func refused(t *testing.T, err error, reason, message string) {
	t.Helper()
	if !errors.Is(err, client.ErrNoSpace) || fserror.ReasonOf(err) != reason || !strings.Contains(err.Error(), message) {
		t.Errorf("%v, want %q", err, message)
	}
}

// TestQuotas: what one client limits another cannot exceed, over a restart too.
func TestQuotas(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, ann := n.Client(t, env.Named("root")), n.Client(t, env.Named("ann"), func(c *client.Config) { c.User = "ann" })
	must(t, root.MkdirAll(ctx, "/p/a", 0o777))
	must(t, root.Chmod(ctx, "/p/a", 0o777))
	must(t, root.WriteFile(ctx, "/p/a/f", []byte("12345")))
	must(t, quota.Set(ctx, root, "/p", 1000, quota.None))
	must(t, quota.Set(ctx, root, "/p/a", 3, 10))
	must(t, quota.Set(ctx, root, "/p/a", quota.Keep, quota.Keep))
	const want = "/p/a 2/3 5/10 /p 3/1000 5/-1"
	for _, path := range []string{"/p/a", "/p/a/f"} {
		if got := show(t, ann, path); got != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	for path, names := range map[string]int64{"/p": 1000, "/p/a": 3, "/p/a/f": 0, "/": 0} {
		if q, err := quota.Of(ctx, ann, path); err != nil || (q == nil) != (names == 0) || q != nil && (q.Names != names || q.Path != path) {
			t.Errorf("%s: %+v, %v", path, q, err)
		}
	}
	must(t, ann.Mkdir(ctx, "/p/a/d", 0o755))
	for range 2 {
		refused(t, ann.Mkdir(ctx, "/p/a/e", 0o755), fserror.ReasonQuotaNames, "/p/a has a quota of 3 names and has 3")
		n.Restart(t)
	}
	must(t, ann.Remove(ctx, "/p/a/d"))
	refused(t, ann.WriteFile(ctx, "/p/a/g", []byte("123456")), fserror.ReasonQuotaBytes, "/p/a has a quota of 10 bytes and has 5; this would add 6")
	must(t, ann.WriteFile(ctx, "/p/a/g", []byte("12345")))
	if list, err := quota.Above(ctx, ann, "/p/a"); err != nil {
		t.Error(err)
	} else if names, bytes := list[0].Left(); names != 0 || bytes != 0 {
		t.Error(names, bytes)
	} else if names, bytes := list[1].Left(); names != 996 || bytes != math.MaxInt64 {
		t.Error(names, bytes)
	}
	for what, err := range map[string]error{
		"permission": quota.Set(ctx, ann, "/p/a", 100, 100),
		"not found":  quota.Set(ctx, root, "/x", 100, 100),
		"file":       quota.Set(ctx, root, "/p/a/f", 100, 100),
		"argument":   quota.Set(ctx, root, "/p/a", -3, 100),
	} {
		kind := map[string]fserror.Kind{"permission": fserror.Permission, "not found": fserror.NotFound, "file": fserror.NotDirectory, "argument": fserror.InvalidArgument}[what]
		if fserror.KindOf(err) != kind {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, quota.Set(ctx, root, "/p/a", 0, 0)) // below what there is
	must(t, ann.Remove(ctx, "/p/a/g"))
	must(t, root.Truncate(ctx, "/p/a/f", 1))
	must(t, quota.Set(ctx, root, "/p/a", quota.None, quota.None))
	if got := show(t, ann, "/p/a/f"); got != "/p 3/1000 1/-1" {
		t.Error(got)
	}
	must(t, ann.Mkdir(ctx, "/p/a/d", 0o755))
}

// TestOlderNamenode: one of a release without quotas is taken to have none.
func TestOlderNamenode(t *testing.T) {
	t.Parallel()
	fs := env.Start(t).Client(t, func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if strings.HasSuffix(method, "/GetQuota") {
					return status.Error(codes.Unimplemented, "unknown method GetQuota")
				}
				return next(ctx, method, req, reply, cc, opts...)
			}))
	})
	if q, err := quota.Of(t.Context(), fs, "/"); q != nil || err != nil {
		t.Errorf("%+v, %v", q, err)
	}
}

// TestEndOfALease: directories that are attached to a lease go one by one where there is a quota,
// since each is counted down to its end, and are counted no more.
func TestEndOfALease(t *testing.T) {
	t.Parallel()
	fs := env.Start(t).Client(t, env.Named("root"))
	ctx := t.Context()
	must(t, fs.Mkdir(ctx, "/q", 0o755))
	must(t, quota.Set(ctx, fs, "/q", 1000, quota.None))
	l, err := fs.Leases().Grant(ctx, time.Minute, 0)
	must(t, err)
	const dirs = 5
	for i := range dirs {
		dir := fmt.Sprint("/q/", i)
		must(t, fs.Mkdir(ctx, dir, 0o755))
		must(t, fs.Leases().Attach(ctx, l.ID, dir))
		must(t, fs.WriteFile(ctx, dir+"/f", nil))
	}
	before, err := fs.Status(ctx)
	must(t, err)
	must(t, fs.Leases().Revoke(ctx, l.ID))
	for show(t, fs, "/q") != "/q 1/1000 0/-1" {
		must(t, ctx.Err())
	}
	after, err := fs.Status(ctx)
	must(t, err)
	if n := after[0].TxID - before[0].TxID; n < dirs {
		t.Errorf("%d directories went with %d records", dirs, n)
	}
}

// TestList: all quotas, in pages, but none of what the caller may not see.
func TestList(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, ann := n.Client(t, env.Named("root")), n.Client(t, env.Named("ann"), func(c *client.Config) { c.User = "ann" })
	const many = 1003
	for i := range many {
		dir := fmt.Sprintf("/%d/%d", i%2, i)
		must(t, root.MkdirAll(ctx, dir, 0o755))
		must(t, quota.Set(ctx, root, dir, 5, quota.None))
	}
	must(t, root.Chmod(ctx, "/1", 0o700))
	list := func(fs *client.FS) (seen map[string]bool) {
		seen = map[string]bool{}
		must(t, quota.List(ctx, fs, func(q *quota.Quota) error {
			if seen[q.Path] || q.Names != 5 || q.UsedNames != 1 {
				t.Errorf("%+v", q)
			}
			seen[q.Path] = true
			return nil
		}))
		return seen
	}
	if all, some := list(root), list(ann); len(all) != many || len(some) != many/2+1 || some["/1/1"] {
		t.Errorf("%d and %d", len(all), len(some))
	}
	boom := errors.New("boom")
	if err := quota.List(ctx, root, func(*quota.Quota) error { return boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
}

// TestWriters: a writer that is refused keeps what it has, and can end or continue when there is
// room.
func TestWriters(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("writer"))
	must(t, fs.MkdirAll(ctx, "/q", 0o755))
	must(t, quota.Set(ctx, fs, "/q", quota.None, 10))
	w, err := fs.Create(ctx, "/q/f")
	must(t, err)
	_, err = w.Write([]byte("1234567"))
	must(t, err)
	must(t, w.Flush(ctx))
	_, _ = w.Write([]byte("89012"))
	refused(t, w.Flush(ctx), fserror.ReasonQuotaBytes, "/q has a quota of 10 bytes and has 7; this would add 5")
	if got := show(t, fs, "/q"); got != "/q 2/-1 7/10" {
		t.Error(got)
	}
	must(t, quota.Set(ctx, fs, "/q", quota.None, 12))
	must(t, w.Flush(ctx)) // nothing of it was lost
	_, _ = w.Write([]byte("too much"))
	refused(t, w.Close(), fserror.ReasonQuotaBytes, "/q has a quota of 12 bytes and has 12")
	if data, err := fs.ReadFile(ctx, "/q/f"); err != nil || string(data) != "123456789012" {
		t.Errorf("%q, %v", data, err)
	}
	if i, err := fs.Stat(ctx, "/q/f"); err != nil || i.Open != nil {
		t.Errorf("%+v, %v", i, err)
	}
}

// TestGreedy: many writers at a limit get as much as there is, to the byte and the name.
func TestGreedy(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs := n.Client(t, env.Named("root"))
	must(t, fs.MkdirAll(ctx, "/q/in", 0o755))
	must(t, quota.Set(ctx, fs, "/q", 2+50, 1000))
	var all sync.WaitGroup
	for i := range 8 {
		f := n.Client(t, env.Named(fmt.Sprint(i)), func(c *client.Config) { c.Cache = i%2 == 0 })
		all.Go(func() {
			for k := range 20 {
				name := fmt.Sprintf("/q/in/%d-%d", i, k)
				var err error
				switch k % 3 {
				case 0:
					err = f.WriteFile(ctx, name, make([]byte, 33))
				case 1:
					if err = f.WriteFile(ctx, "/out"+name[5:], make([]byte, 7)); err == nil {
						err = f.Rename(ctx, "/out"+name[5:], name, false)
					}
				default:
					err = writes(ctx, f, name)
				}
				if err != nil && !fserror.OverQuota(err) && !errors.Is(err, client.ErrNotFound) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	q, err := quota.Above(ctx, fs, "/q")
	must(t, err)
	sum, err := fs.Summary(ctx, "/q")
	must(t, err)
	if u := q[0]; u.UsedNames > 52 || u.UsedBytes > 1000 || u.UsedBytes < 1000-33 && u.UsedNames < 52 || u.UsedBytes != sum.Length || u.UsedNames != int64(sum.Files+sum.Directories) {
		t.Errorf("%+v, %+v", u, sum)
	}
}

// writes appends some bytes in several flushes.
func writes(ctx context.Context, f *client.FS, name string) error {
	w, err := f.Create(ctx, name)
	if err != nil {
		return err
	}
	for range 5 {
		if _, err = w.Write([]byte("12345")); err == nil {
			err = w.Flush(ctx)
		}
		if err != nil {
			return errors.Join(err, w.Abort())
		}
	}
	return w.Close()
}
