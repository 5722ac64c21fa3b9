package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// image is all that there is below a directory, by relative path.
func image(t *testing.T, f *client.FS, dir string) map[string]string {
	t.Helper()
	all, low := map[string]string{}, lowlevel.Of(f)
	for i, err := range f.Find(t.Context(), dir, client.FindOptions{}) {
		noError(t, err)
		x := low.XattrsInode(i.Inode)
		text := fmt.Sprint(i.Mode(), " ", i.User, ":", i.Group, " ", i.LinkTarget)
		text += fmt.Sprint(" ", i.ModTime().UnixMilli())
		if i.Type() != fs.ModeSymlink {
			list, err := x.ACL(t.Context())
			noError(t, err)
			xattrs, err := x.All(t.Context())
			noError(t, err)
			text += fmt.Sprint(" ", list, xattrs)
		}
		if i.Mode().IsRegular() {
			data, err := f.ReadFile(t.Context(), i.Path)
			noError(t, err)
			text += fmt.Sprintf(" %d bytes %.40q", len(data), data)
		}
		all[strings.TrimPrefix(strings.TrimPrefix(i.Path, dir), "/")] = text
	}
	return all
}

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// differences are the paths that two images have not in common, or not alike.
func differences(a, b map[string]string) (list []string) {
	for p, text := range a {
		if b[p] != text {
			list = append(list, fmt.Sprintf("%q: %s, not %s", p, text, b[p]))
		}
	}
	for p := range b {
		if _, ok := a[p]; !ok {
			list = append(list, fmt.Sprintf("%q is missing", p))
		}
	}
	return list
}

// mess changes something at random below a directory.
func mess(t *testing.T, f *client.FS, dir string, rng *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	place := func() string {
		p := dir
		for range 1 + rng.IntN(3) {
			p = fspath.Join(p, string(rune('a'+rng.IntN(5))))
		}
		return p
	}
	p := place()
	var err error
	switch rng.IntN(12) {
	case 0, 1:
		err = f.MkdirAll(ctx, p, 0o750)
	case 2, 3:
		err = f.WriteFile(ctx, p, fmt.Append(nil, rng.Uint64()), client.WithOverwrite(), client.WithMode(0o640))
	case 4:
		_, err = f.WriteFrom(ctx, p, bytes.NewReader(bytes.Repeat([]byte{byte(rng.IntN(256))}, 9<<20)), client.WithOverwrite())
	case 5:
		err = f.Rename(ctx, p, place(), true)
	case 6:
		err = f.RemoveAll(ctx, p)
	case 7:
		err = f.Symlink(ctx, fmt.Sprint(rng.IntN(3)), p)
	case 8:
		err = f.Chmod(ctx, p, fs.FileMode(0o400|rng.IntN(0o400))|fs.ModeSticky*fs.FileMode(rng.IntN(2)))
	case 9:
		err = f.Xattrs(p).Set(ctx, fmt.Sprint("user.", rng.IntN(3)), fmt.Append(nil, rng.IntN(3)), client.XattrAny)
	case 10:
		err = f.Xattrs(p).ChangeACL(ctx, client.ACLChange{Action: client.ACLModify, Entries: client.ACL{{Tag: client.ACLUser, Name: "ann", Perm: uint8(rng.IntN(8)), Default: rng.IntN(2) == 0}}})
	case 11:
		if w, aerr := f.Append(ctx, p); aerr == nil {
			_, err = w.Write([]byte("more"))
			err = errors.Join(err, w.Close())
		}
	}
	if k := fserror.KindOf(err); err != nil && (k == fserror.Internal || k == fserror.Unavailable) {
		t.Fatal(err)
	}
}

// TestRestoreAll: after any changes, a directory is again as a snapshot of it has it; without Delete
// all is there that was, and what was made since; a second time there is nothing to do. A dry run says
// what will be done, and does nothing.
func TestRestoreAll(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f := n.Client(t, env.Named("root"))
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a test
	for round := range 20 {
		dir := fmt.Sprint("/", round)
		noError(t, f.Mkdir(ctx, dir, 0o755))
		noError(t, f.Mkdir(ctx, dir+"/outside", 0o755))
		for range 30 {
			mess(t, f, dir+"/d", rng)
		}
		noError(t, f.MkdirAll(ctx, dir+"/d", 0o755))
		noError(t, snapshots.Allow(ctx, f, dir+"/d"))
		_, err := snapshots.Make(ctx, f, dir+"/d", "s")
		noError(t, err)
		was := image(t, f, dir+"/d/.snapshot/s")
		if got := differences(image(t, f, dir+"/d"), was); len(got) != 0 {
			t.Fatalf("a snapshot differs at once: %s", got)
		}
		for range 20 {
			mess(t, f, dir+"/d", rng)
			if rng.IntN(10) == 0 { // moved out, or in
				_ = f.Rename(ctx, dir+"/d/a", dir+"/outside/x", false)
				_ = f.Rename(ctx, dir+"/outside/x", dir+"/d/e", false)
			}
		}
		if got := differences(image(t, f, dir+"/d/.snapshot/s"), was); len(got) != 0 {
			t.Fatalf("a snapshot has changed: %s", got)
		}
		if round%2 == 0 {
			before := image(t, f, dir+"/d")
			steps := 0
			dry, err := transfer.Restore(ctx, f, dir+"/d", "s", "", transfer.RestoreOptions{Delete: true, DryRun: true, Tell: func(transfer.RestoreStep) { steps++ }})
			noError(t, err)
			if got := differences(image(t, f, dir+"/d"), before); len(got) != 0 {
				t.Fatalf("a dry run has changed %s", got)
			}
			did, err := transfer.Restore(ctx, f, dir+"/d", "s", "", transfer.RestoreOptions{Delete: true})
			noError(t, err)
			if dry != did || steps < int(did.Files+did.Directories+did.Symlinks+did.Attributes+did.Removed) {
				t.Errorf("round %d: %d steps, a dry run says %+v, and did was %+v", round, steps, dry, did)
			}
		} else {
			_, err := transfer.Restore(ctx, f, dir+"/d", "s", "", transfer.RestoreOptions{Workers: 1})
			now := image(t, f, dir+"/d")
			for p, text := range was {
				if err == nil && now[p] != text && !strings.HasPrefix(text, "d") { // times of directories
					t.Errorf("round %d, %s: %s, not %s", round, p, now[p], text)
				}
			}
			if err != nil && fserror.KindOf(err) != fserror.Exists && fserror.KindOf(err) != fserror.NotDirectory && fserror.KindOf(err) != fserror.Loop { // something is in the way
				t.Errorf("round %d: %v", round, err)
			}
			_, err = transfer.Restore(ctx, f, dir+"/d", "s", "", transfer.RestoreOptions{Delete: true})
			noError(t, err)
		}
		if got := differences(image(t, f, dir+"/d"), was); len(got) != 0 {
			t.Fatalf("round %d: %s", round, strings.Join(got, "\n"))
		}
		if again, err := transfer.Restore(ctx, f, dir+"/d", "s", "", transfer.RestoreOptions{Delete: true}); err != nil || again != (transfer.Restored{}) {
			t.Errorf("round %d, again: %+v, %v", round, again, err)
		}
	}
}

// TestRestorePart: only what is asked for comes back, with the directories that lead to it.
func TestRestorePart(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f := n.Client(t, env.Named("root"))
	noError(t, f.MkdirAll(ctx, "/d/a/b/c", 0o750))
	noError(t, f.MkdirAll(ctx, "/d/x", 0o755))
	for _, p := range []string{"/d/a/b/c/f", "/d/a/b/g", "/d/a/h", "/d/x/y"} {
		noError(t, f.WriteFile(ctx, p, []byte(p)))
	}
	noError(t, snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	noError(t, err)
	noError(t, f.Rename(ctx, "/d/a", "/d/moved", false))
	noError(t, f.WriteFile(ctx, "/d/x/y", []byte("other"), client.WithOverwrite()))
	noError(t, f.MkdirAll(ctx, "/d/a/b/c", 0o755)) // another directory
	noError(t, f.WriteFile(ctx, "/d/a/b/c/new", nil))
	restore := func(below string, o transfer.RestoreOptions) transfer.Restored {
		t.Helper()
		r, err := transfer.Restore(ctx, f, "/d", "s", below, o)
		noError(t, err)
		return r
	}
	if r := restore("a/b/c", transfer.RestoreOptions{}); r.Files != 1 || r.Left != 1 {
		t.Errorf("%+v", r)
	}
	if _, err := f.Stat(ctx, "/d/a/b/g"); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("what was not asked for: %v", err)
	}
	if r := restore("a/b/c", transfer.RestoreOptions{Delete: true}); r.Files != 0 || r.Removed != 1 {
		t.Errorf("%+v", r)
	}
	noError(t, f.RemoveAll(ctx, "/d/a"))
	if r := restore("a/b/c/f", transfer.RestoreOptions{}); r.Files != 1 || r.Directories != 3 {
		t.Errorf("%+v", r)
	}
	if i, err := f.Stat(ctx, "/d/a/b"); err != nil || i.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", i, err)
	}
	if data, err := f.ReadFile(ctx, "/d/x/y"); err != nil || string(data) != "other" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := transfer.Restore(ctx, f, "/d", "s", "a/none", transfer.RestoreOptions{}); fserror.KindOf(err) != fserror.NotFound {
		t.Error(err)
	}
	if _, err := transfer.Restore(ctx, f, "/d", "none", "", transfer.RestoreOptions{}); fserror.KindOf(err) != fserror.NotFound {
		t.Error(err)
	}
	if _, err := transfer.Restore(ctx, f, "/d/x/y", "s", "", transfer.RestoreOptions{}); fserror.KindOf(err) != fserror.NotDirectory {
		t.Error(err)
	}
}

// TestRestoreContinues: what fails is named, and the rest comes back all the same: a file that another
// writes, another's file, something in the way. One that is cancelled ends.
func TestRestoreContinues(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root, ann := n.Client(t, env.Named("root")), n.Client(t, env.Named("ann"), func(c *client.Config) { c.User = "ann" })
	noError(t, root.Mkdir(ctx, "/d", 0o777))
	noError(t, root.Chmod(ctx, "/d", 0o777))
	noError(t, root.Chown(ctx, "/d", "ann", ""))
	for _, name := range []string{"held", "mine", "way"} {
		noError(t, ann.WriteFile(ctx, "/d/"+name, []byte(name)))
	}
	noError(t, root.WriteFile(ctx, "/d/his", []byte("his"), client.WithMode(0o644)))
	noError(t, snapshots.Allow(ctx, root, "/d"))
	_, err := snapshots.Make(ctx, root, "/d", "s")
	noError(t, err)
	for _, name := range []string{"held", "mine", "way", "his"} {
		noError(t, root.Remove(ctx, "/d/"+name))
	}
	w, err := root.Create(ctx, "/d/held", client.WithMode(0o666))
	noError(t, err)
	noError(t, root.MkdirAll(ctx, "/d/way/below", 0o777))
	failed := map[string]fserror.Kind{}
	got, err := transfer.Restore(ctx, ann, "/d", "s", "", transfer.RestoreOptions{Failed: func(path string, err error) { failed[path] = fserror.KindOf(err) }})
	if err == nil || got.Failed < 3 || failed["/d/held"] != fserror.Held || failed["/d/way"] != fserror.Exists || failed["/d/his"] != fserror.Permission {
		t.Errorf("%+v, %v, %v", got, failed, err)
	}
	if data, err := ann.ReadFile(ctx, "/d/mine"); err != nil || string(data) != "mine" {
		t.Errorf("%q, %v", data, err)
	}
	noError(t, w.Close())
	if got, err := transfer.Restore(ctx, root, "/d", "s", "", transfer.RestoreOptions{Delete: true}); err != nil || got.Failed != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	if i, err := root.Stat(ctx, "/d/mine"); err != nil || i.User != "ann" {
		t.Errorf("%+v, %v", i, err)
	}

	_, err = root.WriteFrom(ctx, "/d/mine", strings.NewReader("other"), client.WithOverwrite())
	noError(t, err)
	cancelled, cancel := context.WithCancelCause(ctx)
	boom := errors.New("boom")
	cancel(boom)
	if _, err := transfer.Restore(cancelled, root, "/d", "s", "", transfer.RestoreOptions{}); !errors.Is(err, boom) && fserror.KindOf(err) != fserror.Canceled {
		t.Error(err)
	}
	if data, err := root.ReadFile(ctx, "/d/mine"); err != nil || string(data) != "other" {
		t.Errorf("%q, %v", data, err)
	}
}

// TestRestoreSparesWhoOpensLast: a file that another opens just before it is replaced is not: what its
// writer was told is durable stays.
func TestRestoreSparesWhoOpensLast(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f, wire := n.Wired(t)
	writer := n.Client(t, env.Named("writer"))
	noError(t, f.Mkdir(ctx, "/d", 0o755))
	noError(t, f.WriteFile(ctx, "/d/a", []byte("then")))
	noError(t, snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	noError(t, err)
	noError(t, f.WriteFile(ctx, "/d/a", []byte("now"), client.WithOverwrite()))
	var w *client.Writer
	open := func() (err error) {
		if w, err = writer.Append(ctx, "/d/a"); err == nil {
			if _, err = w.Write([]byte(" and acknowledged")); err == nil {
				err = w.Flush(ctx)
			}
		}
		return err
	}
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Rename" && w == nil {
			if err := open(); err != nil {
				t.Error(err)
			}
		}
		return send()
	})
	if got, err := transfer.Restore(ctx, f, "/d", "s", "", transfer.RestoreOptions{}); !errors.Is(err, fserror.Held) || got.Failed != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if data, err := f.ReadFile(ctx, "/d/a"); err != nil || string(data) != "now and acknowledged" {
		t.Errorf("%q, %v", data, err)
	}
	noError(t, w.Close())
}

// TestRestoreKeepsTimes: a file whose attributes alone were changed stays the same inode.
func TestRestoreKeepsTimes(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f := n.Client(t, env.Named("root"))
	noError(t, f.Mkdir(ctx, "/d", 0o755))
	noError(t, f.WriteFile(ctx, "/d/f", []byte("text")))
	noError(t, snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	noError(t, err)
	was, err := f.Stat(ctx, "/d/f")
	noError(t, err)
	noError(t, f.Chmod(ctx, "/d/f", 0o600))
	noError(t, f.Chtimes(ctx, "/d/f", time.UnixMilli(1000)))
	got, err := transfer.Restore(ctx, f, "/d", "s", "", transfer.RestoreOptions{})
	is, serr := f.Stat(ctx, "/d/f")
	if err != nil || serr != nil || got.Files != 0 || got.Attributes != 1 || is.Inode != was.Inode || is.Mode() != was.Mode() || !is.ModTime().Equal(was.ModTime()) {
		t.Errorf("%+v, %v, %+v, %+v", got, err, was, is)
	}
}

// TestRestoreGivesNoRights: what is moved to where something comes back does not get what the snapshot
// gives that, nor is anything removed from it.
func TestRestoreGivesNoRights(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	root := n.Client(t, env.Named("root"))
	noError(t, root.MkdirAll(ctx, "/d/sub", 0o755))
	noError(t, root.MkdirAll(ctx, "/secret/dir", 0o700))
	for _, p := range []string{"/d/f", "/d/sub/g", "/secret/f", "/secret/dir/h"} {
		noError(t, root.WriteFile(ctx, p, []byte(p), client.WithMode(0o600)))
	}
	noError(t, root.Chmod(ctx, "/d/f", 0o644))
	for _, p := range []string{"/d/f", "/d/sub", "/d/sub/g"} {
		noError(t, root.Chown(ctx, p, "ann", ""))
	}
	noError(t, snapshots.Allow(ctx, root, "/d"))
	_, err := snapshots.Make(ctx, root, "/d", "s")
	noError(t, err)
	noError(t, root.Chmod(ctx, "/d/f", 0o600))
	noError(t, root.Rename(ctx, "/d/sub", "/gone", false))
	noError(t, root.Rename(ctx, "/secret/dir", "/d/sub", false))
	_, err = transfer.Restore(ctx, root, "/d", "s", "", transfer.RestoreOptions{Tell: func(s transfer.RestoreStep) {
		if s.Do == transfer.RestoreSet && s.Path == "/d/f" {
			noError(t, root.Rename(ctx, "/secret/f", "/d/f", true))
		}
	}})
	if err == nil {
		t.Error("another directory took the place of one, and nobody was told")
	}
	for _, p := range []string{"/d/f", "/d/sub/h", "/d/sub"} {
		if i, err := root.Stat(ctx, p); err != nil || i.User != "root" || i.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %+v, %v", p, i, err)
		}
	}
	if _, err := root.Stat(ctx, "/d/sub/g"); fserror.KindOf(err) != fserror.NotFound {
		t.Errorf("a file came into another's directory: %v", err)
	}
}

// TestRestoreSaysWhatIsInTheWay: something of another type, and a directory of another owner, stay
// where they are, and the error says which, and that they are to be moved or removed.
func TestRestoreSaysWhatIsInTheWay(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f := n.Client(t, env.Named("root"))
	for _, p := range []string{"/d/file", "/d/link", "/d/other/g", "/d/own/g"} {
		dir, _ := fspath.Split(p)
		noError(t, f.MkdirAll(ctx, dir, 0o755))
		if p == "/d/link" {
			noError(t, f.Symlink(ctx, "file", p))
			continue
		}
		noError(t, f.WriteFile(ctx, p, []byte(p)))
	}
	noError(t, snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	noError(t, err)
	for _, p := range []string{"/d/file", "/d/link", "/d/other", "/d/own"} {
		noError(t, f.RemoveAll(ctx, p))
		noError(t, f.MkdirAll(ctx, p, 0o755))
	}
	noError(t, f.Chown(ctx, "/d/other", "ann", ""))
	failed := map[string]error{}
	_, err = transfer.Restore(ctx, f, "/d", "s", "", transfer.RestoreOptions{Failed: func(path string, err error) { failed[path] = err }})
	if err == nil {
		t.Error("all was restored")
	}
	for p, text := range map[string]string{
		"/d/file":    "there is a directory now, which was made since, and the snapshot has a file;",
		"/d/link":    "there is a directory now, which was made since, and the snapshot has a symbolic link;",
		"/d/other":   "there is another directory now, which belongs to user ann and would get what was user root's;",
		"/d/other/g": "there is another directory now, which belongs to user ann",
	} {
		if err := failed[p]; fserror.KindOf(err) != fserror.Exists || fserror.ReasonOf(err) != fserror.ReasonInWay || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", p, err)
		}
		delete(failed, p)
	}
	if len(failed) > 0 {
		t.Errorf("%v", failed)
	}
	if data, err := f.ReadFile(ctx, "/d/own/g"); err != nil || string(data) != "/d/own/g" { // a directory of the same owner
		t.Errorf("%q, %v", data, err)
	}
	if list, err := f.ReadDir(ctx, "/d/other"); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	noError(t, f.Rename(ctx, "/d/other", "/elsewhere", false)) // as the error says
	if _, err := transfer.Restore(ctx, f, "/d", "s", "other", transfer.RestoreOptions{}); err != nil {
		t.Error(err)
	}
	_, err = transfer.Restore(ctx, f, "/d", "s", "", transfer.RestoreOptions{Delete: true})
	noError(t, err)
	if d := differences(image(t, f, "/d/.snapshot/s"), image(t, f, "/d")); len(d) > 0 {
		t.Error(d)
	}
}

// TestRestoreDeletesNothingHeld: with Delete, too, a file that another has open for write stays and is
// named, itself or in a directory that was made since, or that is in the way.
func TestRestoreDeletesNothingHeld(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	f, writer := n.Client(t, env.Named("root")), n.Client(t, env.Named("writer"))
	noError(t, f.Mkdir(ctx, "/d", 0o755))
	noError(t, f.Symlink(ctx, "x", "/d/was"))
	noError(t, snapshots.Allow(ctx, f, "/d"))
	_, err := snapshots.Make(ctx, f, "/d", "s")
	noError(t, err)
	noError(t, f.Remove(ctx, "/d/was"))
	noError(t, f.WriteFile(ctx, "/d/new", nil))
	paths := []string{"/d/made", "/d/dir/in/it", "/d/was"}
	var writers []*client.Writer
	for _, p := range paths {
		w, err := writer.Create(ctx, p, client.WithParents())
		noError(t, err)
		_, err = w.Write([]byte("flushed"))
		noError(t, err)
		noError(t, w.Flush(ctx))
		writers = append(writers, w)
	}
	failed := map[string]fserror.Kind{}
	o := transfer.RestoreOptions{Delete: true, Failed: func(path string, err error) { failed[path] = fserror.KindOf(err) }}
	got, err := transfer.Restore(ctx, f, "/d", "s", "", o)
	if !errors.Is(err, fserror.Held) || got.Failed != 3 || got.Removed != 1 || len(failed) != 3 {
		t.Errorf("%+v, %v, %v", got, failed, err)
	}
	for i, w := range writers {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if data, err := f.ReadFile(ctx, paths[i]); err != nil || string(data) != "flushed" {
			t.Errorf("%s: %q, %v", paths[i], data, err)
		}
	}
	if got, err := transfer.Restore(ctx, f, "/d", "s", "", o); err != nil || got.Removed != 3 {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestRestoreAroundPrivateDirectories: a directory that its owner may not list, since it is another's,
// stops no restore: the rest comes back, and the directory is named, whether it was deleted, or something
// in it was changed, which is left out of the diff.
func TestRestoreAroundPrivateDirectories(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	as := func(user string) *client.FS {
		return n.Client(t, env.Named(user), func(c *client.Config) { c.User = user })
	}
	root, ann, bob := n.Client(t, env.Named("root")), as("ann"), as("bob")
	noError(t, root.Mkdir(ctx, "/d", 0o777))
	noError(t, root.Chown(ctx, "/d", "ann", ""))
	for _, dir := range []string{"/d/old", "/d/old/open", "/d/open"} {
		noError(t, ann.Mkdir(ctx, dir, 0o777))
		noError(t, ann.Chmod(ctx, dir, 0o777))
	}
	for _, f := range []string{"/d/f", "/d/old/a", "/d/old/open/f", "/d/old/z"} {
		noError(t, ann.WriteFile(ctx, f, []byte("then")))
	}
	for _, dir := range []string{"/d/old/x", "/d/open/x", "/d/open/x/in", "/d/open/same"} {
		noError(t, bob.Mkdir(ctx, dir, 0o700))
		noError(t, bob.WriteFile(ctx, dir+"/f", []byte("then")))
	}
	noError(t, snapshots.Allow(ctx, root, "/d"))
	_, err := snapshots.Make(ctx, ann, "/d", "s")
	noError(t, err)
	want := image(t, root, "/d")

	noError(t, ann.WriteFile(ctx, "/d/f", []byte("now"), client.WithOverwrite()))
	noError(t, root.RemoveAll(ctx, "/d/old"))
	for _, f := range []string{"/d/open/x/f", "/d/open/x/in/f"} {
		w, err := bob.Append(ctx, f)
		noError(t, err)
		_, err = w.Write([]byte(" and now"))
		noError(t, errors.Join(err, w.Close()))
	}
	leftOut, err := snapshots.Compare(ctx, ann, "/d", "s", "", func(*snapshots.Change) error { return nil })
	if err != nil || len(leftOut) != 1 || leftOut[0] != "open/x" {
		t.Errorf("%q, %v", leftOut, err)
	}
	failed := map[string]fserror.Kind{}
	restore := func(f *client.FS, below string) (transfer.Restored, error) {
		clear(failed)
		return transfer.Restore(ctx, f, "/d", "s", below, transfer.RestoreOptions{Failed: func(path string, err error) { failed[path] = fserror.KindOf(err) }})
	}
	if got, err := restore(ann, "f"); err != nil || got.Files != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	got, err := restore(ann, "")
	if !errors.Is(err, fserror.Permission) || got.Failed != 2 || failed["/d/old/x"] != fserror.Permission || failed["/d/open/x"] != fserror.Permission {
		t.Errorf("%+v, %v, %v", got, failed, err)
	}
	for _, f := range []string{"/d/f", "/d/old/a", "/d/old/open/f", "/d/old/z"} {
		if data, err := ann.ReadFile(ctx, f); err != nil || string(data) != "then" {
			t.Errorf("%s: %q, %v", f, data, err)
		}
	}
	if leftOut, err := snapshots.Compare(ctx, root, "/d", "s", "", func(*snapshots.Change) error { return nil }); err != nil || len(leftOut) != 0 {
		t.Errorf("%q, %v", leftOut, err)
	}
	if got, err := restore(root, ""); err != nil || got.Failed != 0 {
		t.Errorf("%+v, %v, %v", got, failed, err)
	}
	if list := differences(want, image(t, root, "/d")); len(list) > 0 {
		t.Error(strings.Join(list, "\n"))
	}
}
