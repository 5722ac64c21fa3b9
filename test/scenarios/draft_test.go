package scenarios

import (
	"context"
	"errors"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

func drafting(c *client.Config) { c.Cache, c.Drafts = true, true }

// mine sees to it that the client has the delegation of a directory,
// where it has made the file "first".
func mine(t *testing.T, f *client.FS, dir string) {
	t.Helper()
	env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(f).CacheRemaining() > 0 })
	unkept(t, f, dir+"/first")
	w, err := f.Create(t.Context(), dir+"/first")
	must(t, err)
	must(t, w.Close())
}

// unkept looks for what is not there, and for all above, as the kernel does
// before it makes a file.
func unkept(t *testing.T, f *client.FS, name string) {
	t.Helper()
	for p := path.Dir(name); p != "/"; p = path.Dir(p) {
		_, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(p))
		must(t, err)
	}
	if _, _, err := lowlevel.Of(f).LstatKept(t.Context(), named(t, f, name)); !errors.Is(err, fserror.NotFound) {
		t.Fatalf("%s: %v", name, err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// named is a name in its directory, as the kernel has it.
func named(t *testing.T, f *client.FS, name string) lowlevel.Ref {
	t.Helper()
	i, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(path.Dir(name)))
	must(t, err)
	return lowlevel.Ref{Base: i.Inode, Path: path.Base(name)}
}

func begin(t *testing.T, f *client.FS, name, data string) *lowlevel.Draft {
	t.Helper()
	d := mayBegin(t, f, name, data)
	if d == nil {
		t.Fatalf("no draft of %s", name)
	}
	return d
}

// mayBegin begins a draft, if the client's term has not just ended.
func mayBegin(t *testing.T, f *client.FS, name, data string) *lowlevel.Draft {
	t.Helper()
	unkept(t, f, name)
	d, ok := lowlevel.Of(f).Draft(t.Context(), named(t, f, name), "", client.WithMode(0o640))
	if !ok {
		return nil
	}
	if !d.Write([][]byte{[]byte(data)}) {
		t.Fatal("not written")
	}
	return d
}

func content(t *testing.T, f *client.FS, path, want string) {
	t.Helper()
	got, err := f.ReadFile(t.Context(), path)
	if err != nil || string(got) != want {
		t.Fatalf("%s: %q, %v; want %q", path, got, err, want)
	}
}

// A file of a directory that a client has to itself is one call, made when the file is
// closed. The file has the number that was told before.
func TestDraft(t *testing.T) {
	n := env.Start(t)
	f, wire := n.Wired(t, drafting)
	g := n.Client(t)
	must(t, f.Mkdir(t.Context(), "/d", 0o755))
	mine(t, f, "/d")
	at := named(t, f, "/d/0")
	before, creates, began := wire.Total(), wire.Count("Create"), time.Now()
	const files = 2000 // so that numbers are set aside more than once
	for i := range files {
		at.Path = strconv.Itoa(i)
		path := "/d/" + at.Path
		if _, _, err := lowlevel.Of(f).LstatKept(t.Context(), at); !errors.Is(err, fserror.NotFound) {
			t.Fatal(err)
		}
		d, ok := lowlevel.Of(f).Draft(t.Context(), at, "", client.WithMode(0o640))
		if !ok {
			w, err := lowlevel.Of(f).CreateAt(t.Context(), at, "", client.WithMode(0o640)) // for numbers
			must(t, err)
			must(t, w.Close())
			continue
		}
		if !d.Write([][]byte{[]byte("te"), []byte("xt")}) || d.Length() != 4 {
			t.Fatal("not written")
		}
		must(t, d.Close(t.Context(), 1234567))
		if i%500 == 0 {
			a, err := g.Stat(t.Context(), path)
			must(t, err)
			if a.Inode != d.Inode() || a.Mode() != 0o640 || a.Length != 4 || a.Open != nil || a.ModTime().UnixMilli() != 1234567 {
				t.Fatalf("%+v", a)
			}
			content(t, g, path, "text")
		}
	}
	if n := wire.Count("Create") - creates; n != files {
		t.Errorf("%d creates", n)
	}
	// Each second there may be a renewal, and what is asked again after it.
	if n := wire.Total() - before; n > files+files/100+int(time.Since(began)/time.Second) {
		t.Errorf("%d calls for %d files", n, files)
	}
}

// Nobody else sees a draft, and nobody else gets its name, nor removes its
// directory.
func TestDraftIsHeld(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.CacheTerm = time.Minute }) // that long a draft is held
	f, g := n.Client(t, drafting, env.Named("drafter")), n.Client(t, drafting)
	ctx := t.Context()
	must(t, f.Mkdir(ctx, "/d", 0o755))
	mine(t, f, "/d")
	d := begin(t, f, "/d/a", "mine")
	other := begin(t, f, "/d/b", "as well")
	if _, err := g.Stat(ctx, "/d/a"); !errors.Is(err, fserror.NotFound) {
		t.Fatal(err)
	}
	held := func(what string, err error) {
		t.Helper()
		var e *fserror.Error
		if !errors.As(err, &e) || e.Kind != fserror.Held || e.Holder == nil || e.Holder.Client != "drafter" {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := g.Create(ctx, "/d/a")
	held("create", err)
	_, err = g.Append(ctx, "/d/a", client.WithCreate())
	held("append", err)
	held("mkdir", g.Mkdir(ctx, "/d/a", 0o755))
	held("symlink", g.Symlink(ctx, "x", "/d/b"))
	must(t, g.WriteFile(ctx, "/c", []byte("c")))
	held("rename", g.Rename(ctx, "/c", "/d/a", false))
	held("rmdir", g.RemoveAll(ctx, "/d"))
	// Other names are free, and the delegation is gone from the first of these calls on.
	must(t, g.WriteFile(ctx, "/d/c", []byte("c")))
	if _, ok := lowlevel.Of(f).Draft(t.Context(), named(t, f, "/d/e"), ""); ok {
		t.Fatal("a draft without the delegation")
	}
	must(t, d.Close(ctx, 0))
	content(t, g, "/d/a", "mine")
	if _, err := g.Create(ctx, "/d/a"); !errors.Is(err, fserror.Exists) {
		t.Fatal(err)
	}
	w, err := other.Open(ctx)
	must(t, err)
	if _, err := g.Append(ctx, "/d/b"); !errors.Is(err, fserror.Held) {
		t.Fatal(err)
	}
	_, err = w.Write([]byte("!"))
	must(t, err)
	must(t, w.Close())
	content(t, g, "/d/b", "as well!")
	if err := d.Close(ctx, 0); !errors.Is(err, fserror.Closed) {
		t.Fatal(err)
	}
	must(t, g.RemoveAll(ctx, "/d"))
}

// A directory that another renames takes the drafts in it along; the numbers are
// good at the next namenode.
func TestDraftGoesAlong(t *testing.T) {
	n := env.Start(t)
	f, g := n.Client(t, drafting), n.Client(t)
	ctx := t.Context()
	must(t, f.MkdirAll(ctx, "/d/e", 0o755))
	mine(t, f, "/d/e")
	a, b := begin(t, f, "/d/e/a", "a"), begin(t, f, "/d/e/b", "b")
	must(t, g.Rename(ctx, "/d", "/f", false))
	must(t, a.Close(ctx, 0))
	content(t, g, "/f/e/a", "a")
	n.Restart(t)
	must(t, b.Close(ctx, 0))
	content(t, g, "/f/e/b", "b")
	if i, err := g.Stat(ctx, "/f/e/b"); err != nil || i.Inode != b.Inode() {
		t.Fatal(i, err)
	}
}

// What a draft cannot take, a Writer does; one whose name is lost says so.
func TestDraftEnds(t *testing.T) {
	n := env.Start(t)
	f, g := n.Client(t, drafting), n.Client(t)
	ctx := t.Context()
	must(t, f.Mkdir(ctx, "/d", 0o755))
	mine(t, f, "/d")
	d := begin(t, f, "/d/large", "begun")
	if d.Write([][]byte{make([]byte, 1<<20)}) || d.Length() != 5 {
		t.Fatal("a draft of more than there may be")
	}
	w, err := d.Open(ctx)
	must(t, err)
	if d.Write([][]byte{[]byte("late")}) {
		t.Fatal("written to a draft that has ended")
	}
	if w.Inode() != d.Inode() || w.Length() != 5 {
		t.Fatal(w.Inode(), w.Length())
	}
	must(t, w.Close())
	content(t, g, "/d/large", "begun")
	// Its own client cannot make the file by another call meanwhile.
	d = begin(t, f, "/d/twice", "draft")
	if err := f.WriteFile(ctx, "/d/twice", []byte("file")); !errors.Is(err, fserror.Held) {
		t.Fatal(err)
	}
	must(t, d.Close(ctx, 0))
	content(t, g, "/d/twice", "draft")
	// All above it is removed.
	must(t, f.MkdirAll(ctx, "/p/d", 0o755))
	mine(t, f, "/p/d")
	d = begin(t, f, "/p/d/lost", "draft")
	must(t, g.RemoveAll(ctx, "/p"))
	if err := d.Close(ctx, 0); !errors.Is(err, fserror.LeaseLost) {
		t.Fatal(err)
	}
}

// Two clients make the same names in the same directories, and each name has what
// the one wrote that was told that it did.
func TestDraftsAtOnce(t *testing.T) {
	n := env.Start(t)
	ctx := t.Context()
	clients := []*client.FS{n.Client(t, drafting), n.Client(t, drafting)}
	const dirs, names = 6, 50
	for d := range dirs {
		must(t, clients[0].Mkdir(ctx, "/"+strconv.Itoa(d), 0o755))
	}
	var made [dirs * names]atomic.Int64
	var drafted, refused atomic.Int64
	var wg sync.WaitGroup
	for c, f := range clients {
		env.Eventually(t, "a term of the cache", func() bool { return lowlevel.Of(f).CacheRemaining() > 0 })
		for turn := range 2 {
			wg.Go(func() {
				for k := range made {
					i := (k + (2*c+turn)*2*names) % len(made) // each begins in another directory
					name := "/" + strconv.Itoa(i/names) + "/" + strconv.Itoa(i%names)
					data := strconv.Itoa(c) + "." + strconv.Itoa(turn)
					switch draft, err := makeFile(ctx, f, name, data); {
					case err == nil:
						made[i].Add(1)
						if draft {
							drafted.Add(1)
						}
						if got, err := f.ReadFile(ctx, name); err != nil || string(got) != data {
							t.Errorf("%s: %q, %v; want %q", name, got, err, data)
						}
					case errors.Is(err, fserror.Held), errors.Is(err, fserror.Exists):
						refused.Add(1)
					default:
						got, _ := f.ReadFile(ctx, name)
						t.Errorf("%s by %s, draft %v: %v; it has %q", name, data, draft, err, got)
					}
				}
			})
		}
	}
	wg.Wait()
	for i := range made {
		if n := made[i].Load(); n != 1 {
			t.Errorf("name %d was made %d times", i, n)
		}
	}
	if t.Logf("%d as drafts, %d refused", drafted.Load(), refused.Load()); drafted.Load() == 0 {
		t.Error("no file was a draft")
	}
}

// makeFile makes a file as the mount does: without a call if it may.
func makeFile(ctx context.Context, f *client.FS, name, data string) (draft bool, err error) {
	low := lowlevel.Of(f)
	dir, _, err := low.LstatKept(ctx, lowlevel.At(path.Dir(name)))
	if err != nil {
		return false, err
	}
	at := lowlevel.Ref{Base: dir.Inode, Path: path.Base(name)}
	if _, _, err := low.LstatKept(ctx, at); err == nil {
		return false, fserror.Exists
	}
	d, draft := low.Draft(ctx, at, "")
	if !draft {
		w, err := low.CreateAt(ctx, at, "")
		if err != nil {
			return false, err
		}
		if _, err := w.Write([]byte(data)); err != nil {
			return false, err
		}
		return false, w.Close()
	}
	d.Write([][]byte{[]byte(data)})
	return true, d.Close(ctx, 0)
}

// Who appends to a name that is a draft, and is willing to wait, continues when it
// is a file; the refusal says what it is that holds it.
func TestDraftIsWaitedFor(t *testing.T) {
	n := env.Start(t)
	f, g := n.Client(t, drafting, env.Named("drafter")), n.Client(t)
	ctx := t.Context()
	must(t, f.Mkdir(ctx, "/d", 0o755))
	mine(t, f, "/d")
	d := begin(t, f, "/d/a", "first")
	_, err := g.Append(ctx, "/d/a", client.WithCreate())
	if !errors.Is(err, fserror.Held) || !strings.Contains(err.Error(), `a file "a" is being made`) || strings.Contains(err.Error(), "recover") ||
		!strings.Contains(err.Error(), "/d/a") || !strings.Contains(err.Error(), "drafter") {
		t.Fatal(err)
	}
	_, err = g.Append(ctx, "/d/a", client.WithCreate(), client.WithWait(100*time.Millisecond))
	if !errors.Is(err, fserror.Held) {
		t.Fatal(err)
	}
	appended := make(chan error, 1)
	go func() {
		w, err := g.Append(ctx, "/d/a", client.WithCreate(), client.WithWait(time.Minute))
		if err == nil {
			_, err = w.Write([]byte(" second"))
			err = errors.Join(err, w.Close())
		}
		appended <- err
	}()
	must(t, d.Close(ctx, 0))
	must(t, <-appended)
	content(t, f, "/d/a", "first second")
}

// A client that was away for so long that the namenode has forgotten what it set
// aside for it: what was begun before is made with another number, in its directory
// wherever that is by now, and what is begun after with numbers that are good.
func TestDraftOfOneForgotten(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.CacheTerm = 500 * time.Millisecond })
	f, wire := n.Wired(t, drafting)
	g := n.Client(t)
	ctx := t.Context()
	var d, other, stray *lowlevel.Draft
	var here, there string
	tries := 0
	env.Eventually(t, "three drafts within a term, which is short", func() bool {
		tries++
		here, there = "/d"+strconv.Itoa(tries), "/e"+strconv.Itoa(tries)
		for _, dir := range []string{here, there} {
			must(t, f.Mkdir(ctx, dir, 0o755))
			mine(t, f, dir)
		}
		d, other, stray = mayBegin(t, f, here+"/a", "before"), mayBegin(t, f, here+"/b", "open"), mayBegin(t, f, there+"/c", "elsewhere")
		if d != nil && other != nil && stray != nil {
			return true
		}
		for _, begun := range []*lowlevel.Draft{d, other, stray} {
			if begun != nil {
				must(t, begun.Close(ctx, 0))
			}
		}
		return false
	})
	wire.Cut()
	env.Eventually(t, "the session is forgotten", func() bool {
		return strings.Contains(n.Metrics(t), "leasefs_cache_sessions 0\n")
	})
	must(t, g.Rename(ctx, there, "/moved", false))
	must(t, g.Mkdir(ctx, there, 0o755))
	wire.Mend()
	must(t, d.Close(ctx, 0))
	content(t, g, here+"/a", "before")
	must(t, stray.Close(ctx, 0))
	content(t, g, "/moved/c", "elsewhere")
	if i, err := g.Stat(ctx, there); err != nil || i.Entries != 0 {
		t.Fatal("a draft was made in another directory than its own", i, err)
	}
	if _, err := other.Open(ctx); !errors.Is(err, fserror.LeaseLost) {
		t.Fatal(err)
	}
	env.Eventually(t, "drafts again", func() bool {
		tries++
		name := here + "/c" + strconv.Itoa(tries)
		makeAgain(t, f, here)
		at := named(t, f, name)
		if _, _, err := lowlevel.Of(f).LstatKept(ctx, at); !errors.Is(err, fserror.NotFound) {
			t.Fatal(err)
		}
		next, ok := lowlevel.Of(f).Draft(t.Context(), at, "")
		if !ok {
			return false
		}
		must(t, next.Close(ctx, 0))
		i, err := g.Stat(ctx, name)
		must(t, err)
		return i.Inode == next.Inode()
	})
}

// makeAgain makes another file in a directory, by a call.
func makeAgain(t *testing.T, f *client.FS, dir string) {
	t.Helper()
	_, _, err := lowlevel.Of(f).LstatKept(t.Context(), lowlevel.At(dir))
	must(t, err)
	w, err := f.Create(t.Context(), dir+"/again", client.WithOverwrite())
	must(t, err)
	must(t, w.Close())
}
