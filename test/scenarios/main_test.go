package scenarios_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// No test leaves a goroutine, of a namenode or of a client.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Limits of the tests in which the monitor or the renewals are at work.
const (
	shortSoft = 400 * time.Millisecond
	shortHard = 1500 * time.Millisecond
)

// frozen is a namenode with the default limits (60 s and 20 min) whose time
// stands still until it is told.
func frozen(t *testing.T, mods ...func(*namenode.Config)) (*env.Namenode, *clock.Fake) {
	t.Helper()
	clk, with := env.FakeClock()
	return env.Start(t, append([]func(*namenode.Config){with}, mods...)...), clk
}

const (
	pastSoft = namenode.DefaultSoftLimit + time.Second
	pastHard = namenode.DefaultHardLimit + time.Second
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind fserror.Kind) {
	t.Helper()
	_ = asKind(t, err, kind)
}

// asKind is wantKind for who looks further.
func asKind(t *testing.T, err error, kind fserror.Kind) *fserror.Error {
	t.Helper()
	var e *fserror.Error
	if !errors.Is(err, kind) || !errors.As(err, &e) {
		t.Fatalf("got error %v, want one of kind %v", err, kind)
	}
	return e
}

// wantHeld checks that an open was refused because of that client.
func wantHeld(t *testing.T, err error, by string) {
	t.Helper()
	_ = asHeld(t, err, by)
}

// asHeld is wantHeld for who looks further.
func asHeld(t *testing.T, err error, by string) *fserror.Error {
	t.Helper()
	e := asKind(t, err, fserror.Held)
	if e.Holder == nil || e.Holder.Client != by {
		t.Fatalf("%v: names %+v as the holder, want %s", err, e.Holder, by)
	}
	return e
}

// wantLost checks that a writer was fenced, by whom and why ("" for any).
func wantLost(t *testing.T, err error, by, reason string) {
	t.Helper()
	e := asKind(t, err, fserror.LeaseLost)
	if by != "" && (e.Holder == nil || e.Holder.Client != by) {
		t.Fatalf("%v: names %+v as the new holder, want %s", err, e.Holder, by)
	}
	if reason != "" && e.Reason != reason {
		t.Fatalf("%v: reason %q, want %q", err, e.Reason, reason)
	}
}

// late is what a writer gets that continues after it was fenced: from its write if
// it has heard of the loss, else from the flush.
func late(t *testing.T, w *client.Writer) error {
	t.Helper()
	if _, err := w.Write([]byte("late")); err != nil {
		return err
	}
	return w.Flush(t.Context())
}

func create(t *testing.T, fs *client.FS, path string, opts ...client.OpenOption) *client.Writer {
	t.Helper()
	w, err := fs.Create(t.Context(), path, append(opts, client.WithParents())...)
	must(t, err)
	return w
}

func appendTo(t *testing.T, fs *client.FS, path string, opts ...client.OpenOption) *client.Writer {
	t.Helper()
	w, err := fs.Append(t.Context(), path, opts...)
	must(t, err)
	return w
}

func write(t *testing.T, w *client.Writer, s string) {
	t.Helper()
	_, err := w.Write([]byte(s))
	must(t, err)
}

func flush(t *testing.T, w *client.Writer, s string) {
	t.Helper()
	write(t, w, s)
	must(t, w.Flush(t.Context()))
}

func wantContent(t *testing.T, fs *client.FS, path, want string) {
	t.Helper()
	got, err := fs.ReadFile(t.Context(), path)
	must(t, err)
	if string(got) != want {
		t.Fatalf("%s has %s, want %s", path, brief(string(got)), brief(want))
	}
}

func brief(s string) string {
	if len(s) > 200 {
		return s[:100] + " … " + s[len(s)-100:]
	}
	return "«" + s + "»"
}

func stat(t *testing.T, fs *client.FS, path string) *client.FileInfo {
	t.Helper()
	i, err := fs.Stat(t.Context(), path)
	must(t, err)
	return i
}

// wantOpen checks who has the file open for write; "" for nobody.
func wantOpen(t *testing.T, fs *client.FS, path, by string) {
	t.Helper()
	got := ""
	if o := stat(t, fs, path).Open; o != nil {
		got = o.Holder.Client
	}
	if got != by {
		t.Fatalf("%s is open for write by %q, want %q", path, got, by)
	}
}

// waitClosed waits until nobody has the file open for write.
func waitClosed(t *testing.T, fs *client.FS, path string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r, err := fs.Open(ctx, path)
	must(t, err)
	defer r.Close()
	if _, open, err := r.WaitBeyond(ctx, 1<<40); err != nil || open {
		t.Fatalf("%s did not get closed: open %v, %v", path, open, err)
	}
}

// waitLost waits until the writer knows that it lost the file.
func waitLost(t *testing.T, w *client.Writer) error {
	t.Helper()
	select {
	case <-w.Context().Done():
	case <-time.After(2 * time.Minute):
		t.Fatalf("the writer of %s did not learn that its lease is lost", w.Path())
	}
	return context.Cause(w.Context())
}

// leases lists the leases of a client name.
func leases(t *testing.T, fs *client.FS, holder string) (all []*client.Lease) {
	t.Helper()
	for l, err := range fs.Leases().List(t.Context(), client.LeaseFilter{Holder: holder}) {
		must(t, err)
		all = append(all, l)
	}
	return all
}

// wantLeased checks that a client has exactly one lease, over these paths.
func wantLeased(t *testing.T, fs *client.FS, holder string, paths ...string) {
	t.Helper()
	all := leases(t, fs, holder)
	got := map[string]bool{}
	for _, l := range all {
		for _, f := range l.Files {
			got[f.Path] = true
		}
	}
	wantLeases := min(len(paths), 1)
	if len(all) != wantLeases || len(got) != len(paths) {
		t.Fatalf("%s has %d leases over %v, want %d over %v", holder, len(all), got, wantLeases, paths)
	}
	for _, p := range paths {
		if !got[p] {
			t.Fatalf("%s holds %v, want %v", holder, got, paths)
		}
	}
}

// wantSound runs a check of the whole namespace, blocks included.
func wantSound(t *testing.T, fs *client.FS) {
	t.Helper()
	var found []string
	_, err := fs.Admin().Fsck(t.Context(), "", true, func(p client.FsckProblem) error {
		found = append(found, p.Path+": "+p.Problem)
		return nil
	})
	must(t, err)
	if len(found) > 0 {
		t.Fatalf("fsck: %s", strings.Join(found, "; "))
	}
}

// pattern is n bytes in which no two places look alike.
func pattern(n int) string {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return string(b)
}

// smallBlocks makes blocks of 128 KiB, two checksum chunks each.
func smallBlocks(c *namenode.Config) { c.BlockSize, c.MaxTail = smallBlock, 64<<10 }

const smallBlock = 128 << 10

func removeFile(t *testing.T, path string) {
	t.Helper()
	must(t, os.Chmod(filepath.Dir(path), 0o700))
	must(t, os.Remove(path))
}

// gate lets all who wait through at once.
type gate chan struct{}

func newGate() gate  { return make(gate) }
func (g gate) open() { close(g) }
func (g gate) wait() { <-g }
