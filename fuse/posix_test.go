package fuse_test

import (
	"os"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"

	"github.com/leasefs/leasefs/fuse"
)

// excluded are the tests of go-fuse's POSIX suite that a file system of append-only
// files cannot pass. docs/POSIX.md has the same list.
var excluded = map[string]string{}

func TestPOSIX(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	for name, test := range posixtest.All {
		t.Run(name, func(t *testing.T) {
			if why := excluded[name]; why != "" {
				t.Skip(why)
			}
			dir := m.path(name)
			must(t, os.Mkdir(dir, 0o755))
			test(t, dir)
		})
	}
}
