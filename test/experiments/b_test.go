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
	changes := []nearby{
		{"attributes of the file", "attributes of a file", func(ctx context.Context, fs *client.FS, d string) error { return fs.Chmod(ctx, d+"/f00", 0o600) }, 1},
		{"100 bytes appended to the file: opened, flushed, closed", "", func(ctx context.Context, fs *client.FS, d string) error {
			w, err := fs.Append(ctx, d+"/f00")
			if err != nil {
				return err
			}
			_, _ = w.Write(make([]byte, 100)) // Close tells of its error, too
			return w.Close()
		}, 1},
		{"another file replaced, whole", "", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/f50", []byte("text"), client.WithOverwrite())
		}, 2},
		{"a new file in the directory", "a file made", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/new", nil)
		}, 1},
		{"the missing name made", "", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/missing", nil)
		}, 2},
		{"the file removed", "", func(ctx context.Context, fs *client.FS, d string) error { return fs.Remove(ctx, d+"/f00") }, 2},
		{"the file renamed within the directory", "a file renamed", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.Rename(ctx, d+"/f00", d+"/g00", false)
		}, 2},
		{"attributes of the directory", "attributes of the directory", func(ctx context.Context, fs *client.FS, d string) error { return fs.Chmod(ctx, d, 0o700) }, 1},
		{"the directory renamed", "the directory renamed", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.Rename(ctx, d, d+"-moved", false)
		}, files + 4},
		{"a file made in the directory below", "", func(ctx context.Context, fs *client.FS, d string) error {
			return fs.WriteFile(ctx, d+"/sub/new", nil)
		}, 1},
		{"a file elsewhere", "", func(ctx context.Context, fs *client.FS, _ string) error {
			return fs.WriteFile(ctx, "/elsewhere", nil, client.WithOverwrite())
		}, 0},
	}
	chart := report.Chart{Name: "dropped", Title: "Answers that a reader loses by a change", X: report.Axis{Label: "files in the directory", Log: true}, Y: report.Axis{Label: "answers dropped", Log: true}}
	for _, c := range changes {
		chart.Series = append(chart.Series, report.Series{Name: c.short})
	}
	for _, n := range sizes([]int{10, files}, []int{10, files, 1000}) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, fleetConfig{})
			writer, reader := f.client("writer"), f.client("reader", caching)
			for i, c := range changes {
				messages, dropped, kept := c.take(t, writer, reader, fmt.Sprintf("/d%d", i), n)
				chart.Series[i].Add(float64(n), float64(dropped))
				if n == files {
					row := []any{c.what, messages, dropped}
					for _, k := range kept {
						row = append(row, k)
					}
					table.Row(append(row, max(0, dropped-c.wrong))...)
				}
			}
			f.end()
		})
	}
	shown := chart.Series[:0]
	for _, s := range chart.Series {
		if s.Name != "" {
			shown = append(shown, s)
		}
	}
	chart.Series = shown
	r.Tables, r.Charts = []report.Table{table}, []report.Chart{chart}
}

// asked is what the reader asks for, in a directory.
var asked = []string{"f00", "f01", "", "missing", "sub/deep"}

// nearby is a change near what a reader keeps.
type nearby struct {
	what, short string // short: in the picture; empty: it is not there
	do          func(ctx context.Context, fs *client.FS, d string) error
	wrong       int // answers of 100 files that the change makes untrue
}

// take makes the directory d of so many files, has the reader keep it, and makes the change. It
// returns what the reader was told, what it dropped, and which of what it had asked for it has kept.
func (c nearby) take(t *testing.T, writer, reader *machine, d string, files int) (messages, dropped int, kept []string) {
	var all []client.FileData
	for j := range files {
		all = append(all, client.FileData{Path: fmt.Sprintf("%s/f%02d", d, j)})
	}
	must(t, writer.fs.MkdirAll(t.Context(), d+"/sub", 0o755))
	_, err := writer.fs.WriteFiles(t.Context(), append(all, client.FileData{Path: d + "/sub/deep"}))
	must(t, err)
	_, err = reader.fs.ReadDir(t.Context(), d)
	must(t, err)
	at := func(name string) string { return strings.TrimSuffix(d+"/"+name, "/") }
	for _, name := range asked {
		if name == "missing" {
			keepMissing(t, reader.fs, at(name))
		} else {
			waitCached(t, reader, at(name))
		}
	}
	before := reader.fs.Stats().Cache
	must(t, c.do(t.Context(), writer.fs, d))
	<-time.After(time.Second)
	after := reader.fs.Stats().Cache
	for _, name := range asked {
		hits := reader.fs.Stats().Cache.Hits
		_, _ = reader.fs.Stat(t.Context(), at(name)) // it may be gone
		if reader.fs.Stats().Cache.Hits > hits {
			kept = append(kept, "kept")
		} else {
			kept = append(kept, "–")
		}
	}
	return int(after.Revocations - before.Revocations), int(after.Drops - before.Drops), kept //nolint:gosec // small
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
