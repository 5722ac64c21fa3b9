package files

import (
	"bytes"
	"io/fs"
	"testing"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
)

// as has a rig's calls be made by a user.
func (r *rig) as(user string) {
	r.t.Helper()
	r.cfg.Users.Release(r.u)
	u, err := r.cfg.Users.Get(r.t.Context(), users.Key{User: user})
	if err != nil {
		r.t.Fatal(err)
	}
	r.u = u
}

// TestReadOnlyFileIsItsWriters: as in HDFS, who has a file open needs no permission to write it, which
// is looked at when it is created and when it is opened for append. So its writer continues what it
// created as 0444, or what was made so since, by another gateway, and appends to it no more once it is
// closed. Nobody else continues it, nor its writer after it was closed.
func TestReadOnlyFileIsItsWriters(t *testing.T) {
	first := start(t)
	if err := first.u.FS.Mkdir(t.Context(), "/tmp", 0o777); err != nil {
		t.Fatal(err)
	}
	second := gateway(t, first.nn)
	first.as("ann")
	second.as("ann")
	ctx, u := t.Context(), second.u
	const size = 1 << 10 // of a block
	full := bytes.Repeat([]byte("x"), size)
	attr := hadoop.Attr{Replication: 1, BlockSize: size}
	type open struct {
		path  string
		inode uint64
		last  Block
	}
	continues := map[string]func(t *testing.T, o open) error{
		"addBlock": func(t *testing.T, o open) error {
			next, err := second.AddBlock(ctx, u, name, o.path, o.inode, &o.last)
			if err != nil {
				return err
			}
			if _, err := second.pipe(next).Write(0, full); err != nil {
				t.Error(err)
			}
			next.Length = size
			ok, err := second.Complete(ctx, u, name, o.path, o.inode, &next)
			if got, rerr := u.FS.ReadFile(ctx, o.path); !ok || rerr != nil || len(got) != 2*size {
				t.Errorf("completed: %v; it has %d bytes, want %d: %v", ok, len(got), 2*size, rerr)
			}
			return err
		},
		"complete": func(t *testing.T, o open) error {
			ok, err := second.Complete(ctx, u, name, o.path, o.inode, &o.last)
			if err == nil && !ok {
				t.Error("it was not completed")
			}
			return err
		},
		"fsync": func(_ *testing.T, o open) error {
			return second.Fsync(ctx, u, name, o.path, o.inode, size)
		},
		"updateBlockForPipeline": func(_ *testing.T, o open) error {
			_, err := second.UpdateBlockForPipeline(ctx, u, name, o.last)
			return err
		},
		"renewLease": func(t *testing.T, o open) error {
			second.asked = newAsked()
			second.Renew(ctx, u, name)
			if second.open(o.inode) == nil {
				t.Error("it is not open by the second gateway")
			}
			return nil
		},
	}
	files := map[string]open{}
	for call := range continues {
		for _, mode := range []struct {
			name    string
			is, was fs.FileMode
		}{{"0444", 0o444, 0o444}, {"0400", 0o400, 0o400}, {"0444 since", 0o444, 0o644}} {
			path := "/tmp/" + call + " " + mode.name
			o, err := first.Create(ctx, first.u, name, path, Create{Mode: mode.was, Create: true, Attr: attr})
			if err != nil {
				t.Fatal(err)
			}
			b, err := first.AddBlock(ctx, first.u, name, path, o.Info.Inode, nil)
			if err != nil {
				t.Fatal(err)
			}
			p := first.pipe(b)
			if _, err := p.Write(0, full); err != nil {
				t.Fatal(err)
			}
			if err := p.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := first.u.FS.Chmod(ctx, path, mode.is); err != nil {
				t.Fatal(err)
			}
			b.Length = size
			files[call+" "+mode.name] = open{path, o.Info.Inode, b}
		}
	}
	made, err := first.Create(ctx, first.u, name, "/tmp/made", Create{Mode: 0o444, Create: true, Attr: attr})
	if err != nil {
		t.Fatal(err)
	}
	first.end()

	eve, err := second.cfg.Users.Get(ctx, users.Key{User: "eve"})
	if err != nil {
		t.Fatal(err)
	}
	defer second.cfg.Users.Release(eve)
	_, err = second.AddBlock(ctx, eve, name, "/tmp/made", made.Info.Inode, nil)
	second.kind("another user's client of that name", err, fserror.LeaseLost)
	_, err = second.AddBlock(ctx, u, "another", "/tmp/made", made.Info.Inode, nil)
	second.kind("another client of the user", err, fserror.LeaseLost)
	_, err = second.Append(ctx, u, name, "/tmp/made", false, false)
	second.kind("append to what is open", err, fserror.Permission)

	if _, err := second.Created(ctx, u, name, "/tmp/made", attr); err != nil {
		t.Errorf("create, once more: %v", err)
	}
	for call, f := range continues {
		if call == "renewLease" {
			continue // which continues all files
		}
		for _, mode := range []string{"0444", "0400", "0444 since"} {
			if err := f(t, files[call+" "+mode]); err != nil {
				t.Errorf("%s, mode %s: %v", call, mode, err)
			}
		}
	}
	for _, mode := range []string{"0444", "0400", "0444 since"} {
		_ = continues["renewLease"](t, files["renewLease "+mode])
	}

	closed := files["complete 0444"]
	_, err = second.Append(ctx, u, name, closed.path, false, false)
	second.kind("append to what was completed", err, fserror.Permission)
	if class := hadoop.ClassOf(err); class != hadoop.AccessControl {
		t.Errorf("append to what was completed: %s, want %s", class, hadoop.AccessControl)
	}
	_, err = second.AddBlock(ctx, u, name, closed.path, closed.inode, &closed.last)
	second.kind("a block of what was completed", err, fserror.LeaseLost)
}
