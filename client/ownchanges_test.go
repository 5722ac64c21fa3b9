package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// another is a second client of the namenode that f is of.
func another(t *testing.T, f *client.FS) *client.FS {
	t.Helper()
	list, err := f.Status(t.Context())
	must(t, err)
	g, err := client.New(t.Context(), client.Config{Namenodes: []string{list[0].Address}, User: "root", Cache: true})
	must(t, err)
	t.Cleanup(func() { must(t, g.Close()) })
	return g
}

// TestOwnChanges: a client that caches is not asked about its own creates and
// closes, and makes no call for what their answers said.
func TestOwnChanges(t *testing.T) {
	f := serve(t, func(c *client.Config) { c.Cache = true })
	g := another(t, f)
	ctx := t.Context()
	must(t, f.Mkdir(ctx, "/d", 0o755))
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(f).CacheRemaining() > 0 })
	absent := func(f *client.FS, path string) {
		t.Helper()
		if _, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(path)); !errors.Is(err, fserror.NotFound) {
			t.Fatalf("%s: %v", path, err)
		}
	}
	kept := func(path string) *client.FileInfo {
		t.Helper()
		before := f.Stats().Cache.Misses
		i, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(path))
		must(t, err)
		if n := f.Stats().Cache.Misses - before; n != 0 {
			t.Fatalf("%s took %d reads", path, n)
		}
		return i
	}
	_, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At("/d"))
	must(t, err)
	absent(f, "/d/0") // and so it is known that there is nothing
	revoked := f.Stats().Cache.Revocations
	for i := range 50 {
		path := "/d/" + strconv.Itoa(i)
		absent(f, path)
		w, err := f.Create(ctx, path, client.WithMode(0o640))
		must(t, err)
		if got := kept(path); got.Inode != w.Inode() || got.Mode() != 0o640 || got.User != "root" || got.Open == nil {
			t.Fatalf("%+v", got)
		}
		if got := kept("/d"); got.Entries != uint64(i+1) {
			t.Fatalf("%+v", got)
		}
		_, err = w.Write([]byte("text"))
		must(t, err)
		must(t, w.Flush(ctx))
		must(t, w.Close())
		if got, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(path)); err != nil || got.Length != 4 || got.Open != nil {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if n := f.Stats().Cache.Revocations - revoked; n != 0 {
		t.Fatalf("asked %d times about its own changes", n)
	}
	// Others' changes are heard of all the same.
	absent(f, "/d/theirs")
	must(t, g.WriteFile(ctx, "/d/theirs", nil))
	if _, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At("/d/theirs")); err != nil {
		t.Fatal(err)
	}
	must(t, g.Chmod(ctx, "/d/7", fs.FileMode(0o600)))
	if i, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At("/d/7")); err != nil || i.Mode() != 0o600 {
		t.Fatal(i, err)
	}
	// So are those of its own that are asked for in another way.
	absent(f, "/d/own")
	must(t, f.Mkdir(ctx, "/d/own", 0o755))
	if _, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At("/d/own")); err != nil {
		t.Fatal(err)
	}
}

// TestOwnChangesAtOnce: many make, look for and remove the same names through two
// clients. What a call has done, each look that begins after it sees.
func TestOwnChangesAtOnce(t *testing.T) {
	t.Parallel()
	f := serve(t, func(c *client.Config) { c.Cache = true })
	clients := []*client.FS{f, another(t, f)}
	ctx := t.Context()
	const dirs, names, rounds = 3, 4, 300
	for d := range dirs {
		must(t, f.Mkdir(ctx, fmt.Sprintf("/d%d", d), 0o755))
	}
	// Each name is changed by one worker, and looked at by all: it is there after
	// an odd number of turns. A look during which none began must see the last.
	var began, ended [dirs * names]atomic.Int64
	path := func(i int) string { return fmt.Sprintf("/d%d/n%d", i%dirs, i/dirs) }
	var looks atomic.Int64
	var wg sync.WaitGroup
	for i := range began {
		wg.Go(func() {
			for range rounds {
				there := began[i].Add(1)%2 == 0
				if err := turn(ctx, clients[i%2], path(i), there); err != nil {
					t.Error(err)
					return
				}
				ended[i].Add(1)
				o := rand.IntN(len(began)) //nolint:gosec // not a secret
				turns := ended[o].Load()
				_, _, err := lowlevel.Of(clients[rand.IntN(2)]).LstatKept(ctx, lowlevel.At(path(o))) //nolint:gosec // not a secret
				if began[o].Load() != turns {
					continue
				}
				looks.Add(1)
				if (err == nil) != (turns%2 == 1) {
					t.Errorf("%s after %d turns: %v", path(o), turns, err)
				}
			}
		})
	}
	wg.Wait()
	if looks.Load() == 0 {
		t.Error("no look told anything")
	}
}

// turn makes a file, or removes the one that is there.
func turn(ctx context.Context, c *client.FS, path string, there bool) error {
	if there {
		_, err := lowlevel.Of(c).RemoveTaken(ctx, lowlevel.At(path), lowlevel.Taken{})
		return err
	}
	w, err := c.Create(ctx, path)
	if err != nil {
		return err
	}
	_, _, err = lowlevel.Of(c).LstatKept(ctx, lowlevel.At(path))
	return errors.Join(err, w.Close())
}

// TestOwnChangeUnknown: the reply to a create is lost, and so is what was
// promised with it: the session begins a new stream, and nothing of before is
// answered.
func TestOwnChangeUnknown(t *testing.T) {
	var cancel context.CancelFunc // lost, if not nil
	promised := false
	f := serve(t, func(c *client.Config) {
		c.Cache = true
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				if create, ok := req.(*pb.CreateRequest); ok && cancel != nil {
					promised = create.GetGivenUp() != nil
					cancel()
					return status.Error(codes.Canceled, "the caller has gone")
				}
				return err
			}))
	})
	must(t, f.Mkdir(t.Context(), "/d", 0o755))
	kept := func(path string) bool {
		_, kept, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(path))
		must(t, err)
		return kept
	}
	n := uint64(0)
	var dropped uint64
	for !promised { // without its lease, which it may lack for a moment, it promises nothing
		env.Eventually(t, "the directory is kept", func() bool { return kept("/d") })
		n++
		path := fmt.Sprint("/d/x", n)
		if _, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(path)); !errors.Is(err, fserror.NotFound) {
			t.Fatal(err)
		}
		dropped = f.Stats().Cache.DropAlls
		ctx, stop := context.WithCancel(t.Context())
		cancel = stop
		_, err := f.Create(ctx, path)
		cancel = nil
		if !errors.Is(err, fserror.Canceled) {
			t.Fatal(err)
		}
		if _, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(path)); err != nil {
			t.Fatal(err)
		}
	}
	env.Eventually(t, "another stream", func() bool { return f.Stats().Cache.DropAlls > dropped })
	env.Eventually(t, "the directory is kept again", func() bool { return kept("/d") })
	w, err := f.Create(t.Context(), "/d/y")
	must(t, err)
	must(t, w.Close())
	if i, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At("/d")); err != nil || uint64(i.Entries) != n+1 {
		t.Fatal(i, err)
	}
}

// TestAbsentByOtherPaths: what a directory that was seen empty has since is known
// by whatever path it is reached.
func TestAbsentByOtherPaths(t *testing.T) {
	f := serve(t, func(c *client.Config) { c.Cache = true })
	g := another(t, f)
	ctx := t.Context()
	must(t, g.MkdirAll(ctx, "/p/d", 0o755))
	must(t, g.Symlink(ctx, "/p", "/l"))
	for _, p := range []string{"/p/d", "/l/d"} {
		_, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(p))
		must(t, err)
	}
	for _, p := range []string{"/p/d/x", "/l/d/x"} {
		if _, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(p)); !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	w, err := f.Create(ctx, "/l/d/y")
	must(t, err)
	must(t, w.Close())
	for _, p := range []string{"/l/d/y", "/p/d/y"} {
		_, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(p))
		must(t, err)
	}
}

// TestAbsentWhileMade: whatever is asked while a name is made, the name is there
// when it has been made.
func TestAbsentWhileMade(t *testing.T) {
	f := serve(t, func(c *client.Config) { c.Cache = true })
	ctx := t.Context()
	for i := range 200 {
		dir := "/d" + strconv.Itoa(i)
		must(t, f.Mkdir(ctx, dir, 0o755))
		_, _, err := lowlevel.Of(f).LstatKept(ctx, lowlevel.At(dir))
		must(t, err)
		var wg sync.WaitGroup
		for j := range 4 {
			wg.Go(func() { _, _, _ = lowlevel.Of(f).LstatKept(ctx, lowlevel.At(dir+"/x"+strconv.Itoa(j))) })
		}
		wg.Go(func() {
			w, err := f.Create(ctx, dir+"/y")
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Error(err)
			}
		})
		wg.Wait()
		_, _, err = lowlevel.Of(f).LstatKept(ctx, lowlevel.At(dir+"/y"))
		must(t, err)
	}
}
