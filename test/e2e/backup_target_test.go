package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// treeOf lists all names below a folder.
func treeOf(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		all = append(all, path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestBackupRefusals: what cannot become a backup is refused in one line, and
// stays as it was.
func TestBackupRefusals(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	disk := t.TempDir()
	n := startNamenode(ctx, t, "--blocks", "file://"+disk)
	for i := range 4 {
		n.write(ctx, strings.Repeat("large ", 400_000), "create", fmt.Sprintf("/f%d", i))
	}
	own := startNamenode(ctx, t) // blocks in its data folder
	own.write(ctx, strings.Repeat("large ", 400_000), "create", "/f")
	dir := t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{dir}, parts...)...) }
	file, earlier := at("file"), at("earlier")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"full", "empty", "under"} {
		if err := os.Mkdir(at(d), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("full", "thing"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"nowhere": at("missing"), "data": n.data} {
		if err := os.Symlink(to, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	n.run(ctx, "admin", "backup", earlier)
	ids, err := filepath.Glob(filepath.Join(disk, "*", "NAMESPACE"))
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	before := [][]string{treeOf(t, dir), treeOf(t, disk)}
	for _, c := range []struct {
		target string
		code   int
		says   string
	}{
		{at("full"), fserror.ExitExists, "not empty (thing)"},
		{earlier, fserror.ExitExists, "not empty"},
		{file, fserror.ExitUsage, "it is a file"},
		{filepath.Join(file, "backup"), fserror.ExitUsage, "is a file"},
		{at("nowhere"), fserror.ExitUsage, "link to nowhere"},
		{filepath.Join(n.data, "backup"), fserror.ExitUsage, "inside " + n.data},
		{filepath.Join(n.data, "image", "deep", "deeper"), fserror.ExitUsage, "inside " + n.data},
		{at("data", "backup"), fserror.ExitUsage, "inside " + n.data},
		{filepath.Join(own.data, "blocks", "backup"), fserror.ExitUsage, "block folder"},
		{filepath.Join(disk, "backup"), fserror.ExitUsage, "inside " + disk},
		{filepath.Join(filepath.Dir(ids[0]), "backup"), fserror.ExitUsage, "block folder"},
		{filepath.Join(earlier, "again"), fserror.ExitUsage, "inside " + earlier},
	} {
		line := n.fails(ctx, c.code, "", "admin", "backup", c.target)
		names(t, line, c.target, c.says)
	}
	for i, d := range []string{dir, disk} {
		if after := treeOf(t, d); !slices.Equal(after, before[i]) {
			t.Errorf("changed:\n%q\nbefore\n%q", after, before[i])
		}
	}
	// An empty folder will do, and a name for which folders have to be made.
	for _, target := range []string{at("empty"), at("under", "a", "b")} {
		n.run(ctx, "admin", "backup", target)
		if got := treeOf(t, target); len(got) != len(treeOf(t, earlier)) {
			t.Errorf("%q", got)
		}
	}
	restored := newNamenode(t, at("empty"))
	restored.start(ctx)
	restored.fsck(ctx)
}

// TestBackupToAMount: a disk that is empty, full, and read-only.
func TestBackupToAMount(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	large := strings.Repeat("large ", 400_000)
	for i := range 4 {
		n.write(ctx, large, "create", fmt.Sprintf("/f%d", i))
	}
	room := newScratch(ctx, t, "512m")
	n.from = room.via
	n.run(ctx, "admin", "backup", room.dir)
	names(t, n.fails(ctx, fserror.ExitExists, "", "admin", "backup", room.dir), "not empty")
	restored := newNamenode(t, room.dir)
	restored.via = room.via
	restored.start(ctx)
	restored.fsck(ctx)
	restored.term(ctx)

	small := newScratch(ctx, t, "4m")
	n.from = small.via
	for _, target := range []string{small.dir, filepath.Join(small.dir, "new"), filepath.Join(small.dir, "a", "b", "c")} {
		line := n.fails(ctx, fserror.ExitRetry, "", "admin", "backup", target)
		names(t, line, target, "no space left")
		left, err := os.ReadDir(small.outside())
		kept, none := strings.Contains(line, "the same command continues from there"), strings.Contains(line, "nothing is left")
		if err != nil || kept == none || kept != (len(left) == 1) || len(left) > 1 { // some block was whole, or none
			t.Errorf("%s: %v is left, %v: %q", target, left, err, line)
		}
		for _, e := range left {
			if err := os.RemoveAll(filepath.Join(small.outside(), e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	small.remount(ctx, "ro")
	for _, target := range []string{small.dir, filepath.Join(small.dir, "new")} {
		names(t, n.fails(ctx, fserror.ExitPermission, "", "admin", "backup", target), target, "read-only", "name a folder")
	}
}

// TestBackupsAtOnce: of backups into one folder at a time one wins.
func TestBackupsAtOnce(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	for i := range 4 {
		n.write(ctx, strings.Repeat("large ", 400_000), "create", fmt.Sprintf("/f%d", i))
	}
	for _, there := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "backup")
		if there {
			if err := os.Mkdir(dir, 0o750); err != nil {
				t.Fatal(err)
			}
		}
		var results [5]result
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { results[i] = n.try(ctx, "", "admin", "backup", dir) })
		}
		wg.Wait()
		won := 0
		for _, r := range results {
			switch r.code {
			case 0:
				won++
			case fserror.ExitExists:
				oneLine(t, r.err)
			default:
				t.Errorf("exit code %d: %s", r.code, r.err)
			}
		}
		if won != 1 {
			t.Errorf("%d of them won: %v", won, results)
		}
		if left, err := os.ReadDir(filepath.Dir(dir)); err != nil || len(left) != 1 {
			t.Errorf("%v, %v", left, err)
		}
		restored := newNamenode(t, dir)
		restored.start(ctx)
		restored.fsck(ctx)
		restored.term(ctx)
	}
}

// TestBackupCutOffAtItsEnd: the last step, in a folder that is there, is several;
// the next backup makes good what a crash between them left.
func TestBackupCutOffAtItsEnd(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, time.Minute)
	n := startNamenode(ctx, t)
	n.write(ctx, strings.Repeat("large ", 400_000), "create", "/f")
	dir := t.TempDir()
	n.run(ctx, "admin", "backup", dir)
	part := filepath.Join(dir, ".leasefs-backup.part")
	err := os.Mkdir(part, 0o750)
	if err == nil {
		err = os.Rename(filepath.Join(dir, "VERSION"), filepath.Join(part, "VERSION"))
	}
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	half := newNamenode(t, copied)
	half.process = half.launch(ctx)
	if half.wait(ctx) == 0 {
		t.Error("a namenode started on half a backup")
	}
	n.run(ctx, "admin", "backup", dir)
	whole := newNamenode(t, dir)
	whole.start(ctx)
	whole.fsck(ctx)
}
