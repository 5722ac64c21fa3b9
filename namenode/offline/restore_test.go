package offline

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
)

// TestUsedBackupIsNone: what a namenode was started on is no backup any more, also if its
// journal, with all changes since, is gone.
func TestUsedBackupIsNone(t *testing.T) {
	dir := t.TempDir()
	version := "format = 1\nnamespace = \"00112233445566778899aabbccddeeff\"\nbackup_txid = 7\nbackup_used = true\n"
	if err := os.WriteFile(filepath.Join(dir, datadir.VersionFile), []byte(version), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, _, err := readBackup(vfs.OS(), dir, slog.New(slog.DiscardHandler))
	if fserror.ReasonOf(err) != fserror.ReasonNoBackup || !strings.Contains(err.Error(), "a namenode was started on this backup") {
		t.Error(err)
	}
}
