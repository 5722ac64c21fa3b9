package fuse_test

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/leasefs/leasefs/fuse"
)

// excluded are the tests of go-fuse's POSIX suite that a file system of append-only
// files cannot pass. docs/POSIX.md has the same list.
var excluded = map[string]string{
	"Link":                "hard links: a file has one name",
	"LinkUnlinkRename":    "hard links",
	"Fallocate":           "files grow by writing only",
	"FallocateKeepSize":   "files grow by writing only",
	"FcntlFlockLocksFile": "wants two record locks of one process to conflict; they do not on ext4 either (go-fuse leaves it out there)",
	"Tmpfile":             "files without a name: O_TMPFILE needs link(2) to be of use",
}

func TestPOSIX(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	for name := range excluded {
		if posixtest.All[name] == nil {
			t.Errorf("there is no test %s to leave out", name)
		}
	}
	for name, test := range posixtest.All {
		if excluded[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			dir := m.path(name)
			must(t, os.Mkdir(dir, 0o755))
			test(t, dir)
		})
	}
}
