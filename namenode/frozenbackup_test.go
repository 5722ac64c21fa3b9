package namenode_test

import (
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/snapshots"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env"
)

var freeze = flag.Bool("freeze", false, "write the frozen backup of the newest feature level, once")

const frozenBackups = "../testdata/frozen/backup-"

// TestFrozenBackups: a whole backup as a release of each feature level made it is verified, and served
// by a namenode, for ever. That of the first level is the first release's.
func TestFrozenBackups(t *testing.T) {
	t.Parallel()
	first := strings.Repeat("a block of the first level\n", 1_100_000/27+1)[:1_100_000]
	for level, large := range map[string]string{"1": first, "2": "a block of the second level"} {
		dir := frozenBackups + level
		if *freeze && level == "2" {
			freezeBackup(t, dir, large)
		}
		rep, err := offline.VerifyBackup(t.Context(), vfs.OS(), dir, false, func(p offline.BackupProblem) error {
			t.Errorf("level %s: %+v", level, p)
			return nil
		}, nil)
		if err != nil || rep.Blocks != 1 || rep.Files != 2 {
			t.Errorf("level %s: %+v, %v", level, rep, err)
			continue
		}
		served := filepath.Join(t.TempDir(), "served")
		if err := os.CopyFS(served, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		c := env.Start(t, func(c *namenode.Config) { c.Data = served }).Client(t)
		paths := map[string]string{"/d/large": large, "/d/link": small}
		if level == "2" {
			paths["/d/.snapshot/s/small"] = small
		}
		for path, want := range paths {
			if got, err := c.ReadFile(t.Context(), path); err != nil || string(got) != want {
				t.Errorf("level %s, %s: %d bytes, %v", level, path, len(got), err)
			}
		}
		if info, err := c.Stat(t.Context(), "/d/small"); err != nil || info.Mode() != 0o640 {
			t.Errorf("level %s: %+v, %v", level, info, err)
		}
		if value, err := c.Xattrs("/d/small").Get(t.Context(), "user.a"); err != nil || string(value) != "value" {
			t.Errorf("level %s: %q, %v", level, value, err)
		}
		if to, err := c.Readlink(t.Context(), "/d/link"); err != nil || to != "small" {
			t.Errorf("level %s: a link to %q, %v", level, to, err)
		}
	}
}

// small is what /d/small has.
const small = "a tail of the first level"

// freezeBackup makes the backup of the newest level.
func freezeBackup(t *testing.T, dir, large string) {
	t.Helper()
	n := env.Start(t)
	r, c := n.Raw(t, "a"), n.Client(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); err == nil {
		t.Fatalf("%s is there: what is frozen does not change", dir)
	}
	must(c.Mkdir(t.Context(), "/d", 0o755))
	withBlock(t, r, "/d/large", large)
	must(c.WriteFile(t.Context(), "/d/small", []byte(small), client.WithMode(fs.FileMode(0o640))))
	must(c.Xattrs("/d/small").Set(t.Context(), "user.a", []byte("value"), client.XattrAny))
	must(c.Symlink(t.Context(), "small", "/d/link"))
	must(snapshots.Allow(t.Context(), c, "/d"))
	_, err := snapshots.Make(t.Context(), c, "/d", "s")
	must(err)
	must(backupTo(t, r, dir, nil))
}
