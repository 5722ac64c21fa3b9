package experiments

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/experiments/report"
)

// recalled is what a reader loses of what it keeps when somebody changes something near it.
func recalled(t *testing.T, r *report.Result) {
	const files = 100
	table := report.Table{
		Title:   fmt.Sprintf("A reader has listed a directory of %d files, and then asked for five things. What another client's change takes from it: messages, answers, and which of the five it can still give by itself.", files),
		Columns: []string{"change", "messages", "answers dropped", "the file itself", "its sibling", "the directory", "a missing name", "a file in a directory below", "dropped and still true"},
	}
	asked := []string{"f00", "f01", "", "missing", "sub/deep"}
	changes := []struct {
		what  string
		do    func(ctx context.Context, fs *client.FS, d string) error
		wrong int // answers that the change makes untrue
	}{
		{"attributes of the file", func(ctx context.Context, fs *client.FS, d string) error { return fs.Chmod(ctx, d+"/f00", 0o600) }, 1},
		{"100 bytes appended to the file: opened, flushed, closed", func(ctx context.Context, fs *client.FS, d string) error {
			w, err := fs.Append(ctx, d+"/f00")
			if err != nil {
				return err
			}
			_, _ = w.Write(make([]byte, 100)) // Close tells of its error, too
			return w.Close()
		}, 1},
		{"another file replaced, whole", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/f50", []byte("text"), client.WithOverwrite())
		}, 2},
		{"a new file in the directory", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/new", nil)
		}, 1},
		{"the missing name made", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/missing", nil)
		}, 2},
		{"the file removed", func(ctx context.Context, fs *client.FS, d string) error { return fs.Remove(ctx, d+"/f00") }, 2},
		{"the file renamed within the directory", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.Rename(ctx, d+"/f00", d+"/g00", false)
		}, 2},
		{"attributes of the directory", func(ctx context.Context, fs *client.FS, d string) error { return fs.Chmod(ctx, d, 0o700) }, 1},
		{"the directory renamed", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.Rename(ctx, d, d+"-moved", false)
		}, files + 4},
		{"a file made in the directory below", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/sub/new", nil)
		}, 1},
		{"a file elsewhere", func(ctx context.Context, fs *client.FS, _ string) error {
			return fs.WriteFile(ctx, "/elsewhere", nil, client.WithOverwrite())
		}, 0},
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, fleetConfig{})
		writer, reader := f.client("writer"), f.client("reader", caching)
		for i, c := range changes {
			d := fmt.Sprintf("/d%d", i)
			var all []client.FileData
			for j := range files {
				all = append(all, client.FileData{Path: fmt.Sprintf("%s/f%02d", d, j)})
			}
			must(t, writer.fs.MkdirAll(t.Context(), d+"/sub", 0o755))
			_, err := writer.fs.WriteFiles(t.Context(), append(all, client.FileData{Path: d + "/sub/deep"}))
			must(t, err)
			_, err = reader.fs.ReadDir(t.Context(), d)
			must(t, err)
			for _, name := range asked {
				if path := strings.TrimSuffix(d+"/"+name, "/"); name == "missing" {
					keepMissing(t, reader.fs, path)
				} else {
					waitCached(t, reader, path)
				}
			}
			before := reader.fs.Stats().Cache
			must(t, c.do(t.Context(), writer.fs, d))
			<-time.After(time.Second)
			after := reader.fs.Stats().Cache
			row := []any{c.what, after.Revocations - before.Revocations, after.Drops - before.Drops}
			for _, name := range asked {
				hits := reader.fs.Stats().Cache.Hits
				_, _ = reader.fs.Stat(t.Context(), strings.TrimSuffix(d+"/"+name, "/")) // it may be gone
				kept := "–"
				if reader.fs.Stats().Cache.Hits > hits {
					kept = "kept"
				}
				row = append(row, kept)
			}
			table.Row(append(row, max(0, int(after.Drops-before.Drops)-c.wrong))...) //nolint:gosec // small
		}
		f.end()
	})
	r.Tables = []report.Table{table}
}

// keepMissing returns when the client knows by itself that there is no such name.
func keepMissing(t testing.TB, fs *client.FS, path string) {
	t.Helper()
	for hits, i := fs.Stats().Cache.Hits, 0; fs.Stats().Cache.Hits == hits; i++ {
		if _, err := fs.Stat(t.Context(), path); err == nil || i > 1000 {
			t.Fatalf("%s: %v", path, err)
		}
		<-time.After(time.Millisecond)
	}
}
