package local

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/test/env/crashfs"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	quiet      = slog.New(slog.DiscardHandler)
	background = context.Background()
)

func opener(newFS func(t *testing.T) (vfs.FS, string)) journaltest.Opener {
	return journaltest.Opener{New: func(t *testing.T) func(*testing.T, journaltest.Options) journal.Journal {
		fsys, dir := newFS(t)
		return func(t *testing.T, o journaltest.Options) journal.Journal {
			t.Helper()
			j, err := Open(Config{FS: fsys, Dir: dir, SegmentBytes: o.SegmentBytes, MaxBacklog: o.MaxBacklog, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = j.Close() })
			return j
		}
	}}
}

func TestConformance(t *testing.T) {
	t.Run("crashfs", func(t *testing.T) {
		journaltest.Run(t, opener(func(*testing.T) (vfs.FS, string) { return crashfs.New(), "/nn/journal" }))
	})
	t.Run("os", func(t *testing.T) {
		journaltest.Run(t, opener(func(t *testing.T) (vfs.FS, string) { return vfs.OS(), filepath.Join(t.TempDir(), "journal") }))
	})
}
