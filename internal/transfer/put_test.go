package transfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/trash"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

// localFile makes a file too large for one call.
func localFile(t *testing.T) (path string, data []byte) {
	t.Helper()
	data = bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	path = filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, data
}

// list names what is in the root directory.
func list(t *testing.T, fs *client.FS) (names []string) {
	t.Helper()
	for info, err := range fs.Entries(t.Context(), "/") {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name())
	}
	return names
}

// A put that dies leaves what was there, and nothing beside it once its lease
// is over.
func TestAKilledPutLeavesNothing(t *testing.T) {
	t.Parallel()
	clk, faked := env.FakeClock()
	n := env.Start(t, faked)
	other := n.Client(t)
	if err := other.WriteFile(t.Context(), "/big", []byte("old")); err != nil {
		t.Fatal(err)
	}
	fs, wire := n.Wired(t, func(c *client.Config) { c.Timeout = 10 * time.Second })
	path, data := localFile(t)
	killed := false
	wire.Set(func(method string, _ any, send func() error) error {
		if method != "Close" { // all bytes are there, and the file is still open
			return send()
		}
		if killed {
			return env.ErrLost
		}
		killed = true
		wire.Cut()
		if got, err := other.ReadFile(t.Context(), "/big"); err != nil || string(got) != "old" {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		if names := list(t, other); len(names) != 2 {
			t.Errorf("while it is copied there are %q", names)
		}
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(time.Minute); len(list(t, other)) > 1 && time.Now().Before(end); <-tick.C {
			clk.Advance(time.Second)
		}
		return env.ErrLost
	})
	if _, err := transfer.Put(t.Context(), fs, path, "/big", transfer.Options{Overwrite: true}); err == nil || !killed {
		t.Errorf("a put without a namenode: %v", err)
	}
	if names := list(t, other); len(names) != 1 {
		t.Errorf("it left %q", names)
	}
	if got, err := other.ReadFile(t.Context(), "/big"); err != nil || string(got) != "old" {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	wire.Set(nil)
	wire.Mend()
	if _, err := transfer.Put(t.Context(), other, path, "/big", transfer.Options{Overwrite: true}); err != nil {
		t.Fatal(err)
	}
	if got, err := other.ReadFile(t.Context(), "/big"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if info, err := other.Stat(t.Context(), "/big"); err != nil || info.Lease != 0 {
		t.Errorf("what is published is still attached: %v, %v", info.Lease, err)
	}
}

// A put that is interrupted takes back what it began, for good.
func TestAnInterruptedPutLeavesNothing(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	fs, wire := n.Wired(t)
	if err := fs.Xattrs("/").Set(t.Context(), trash.Xattr, []byte("1d"), client.XattrAny); err != nil {
		t.Fatal(err)
	}
	path, _ := localFile(t)
	stop := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Commit" || method == "AppendTail" || method == "Close" {
			cancel(stop)
		}
		return send()
	})
	if _, err := transfer.Put(ctx, fs, path, "/big", transfer.Options{}); !errors.Is(err, stop) {
		t.Errorf("error %v", err)
	}
	if names := list(t, fs); len(names) != 0 {
		t.Errorf("it left %q", names)
	}
	err := trash.List(t.Context(), fs, trash.Filter{}, func(e *trash.Entry) error { return fmt.Errorf("the trash has %+v", e) })
	if err != nil {
		t.Error(err)
	}
}

// A link of a tree does not take the place of a file that another is writing; its temporary name is
// attached to a lease, which deletes it should this process die.
func TestPutOfALinkSparesWriters(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	ctx := t.Context()
	fs, wire := n.Wired(t)
	writer := n.Client(t, env.Named("writer"))
	local := filepath.Join(t.TempDir(), "p")
	noError(t, os.Mkdir(local, 0o700))
	noError(t, os.Symlink("elsewhere", filepath.Join(local, "f")))
	noError(t, fs.Mkdir(ctx, "/p", 0o755))
	w, err := writer.Create(ctx, "/p/f")
	noError(t, err)
	_, err = w.Write([]byte("flushed"))
	noError(t, err)
	noError(t, w.Flush(ctx))
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Rename" {
			for i, err := range writer.Entries(ctx, "/p") {
				if err != nil || i.Name() != "f" && i.Lease == 0 {
					t.Errorf("%s is attached to no lease; %v", i.Path, err)
				}
			}
		}
		return send()
	})
	put := func() error {
		_, err := transfer.Put(ctx, fs, local, "/", transfer.Options{Recursive: true, Overwrite: true})
		return err
	}
	if err := put(); !errors.Is(err, fserror.Held) {
		t.Error(err)
	}
	noError(t, w.Close())
	if data, err := fs.ReadFile(ctx, "/p/f"); err != nil || string(data) != "flushed" {
		t.Errorf("%q, %v", data, err)
	}
	noError(t, put())
	if i, err := writer.Lstat(ctx, "/p/f"); err != nil || i.LinkTarget != "elsewhere" || i.Lease != 0 {
		t.Errorf("%+v, %v", i, err)
	}
	for i, err := range writer.Entries(ctx, "/p") {
		if err != nil || i.Name() != "f" {
			t.Errorf("%s was left; %v", i.Path, err)
		}
	}
}
