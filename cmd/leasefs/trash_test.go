package main

import (
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// behind is the clock of a machine whose time of day is two days behind.
type behind struct{ clock.System }

func (behind) Wall() time.Time { return time.Now().Add(-48 * time.Hour) }

// TestTrashEmptyByTheNamenodesClock: a client whose clock is ahead removes nothing that was just deleted.
func TestTrashEmptyByTheNamenodesClock(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.Clock = behind{} })
	run := func(argv ...string) string {
		t.Helper()
		code, out, errs := result(t, append([]string{"--namenode", n.Addr(), "--user", "root"}, argv...)...)
		if code != 0 {
			t.Fatalf("%q: code %d: %s", argv, code, errs)
		}
		return out
	}
	run("mkdir", "/k")
	run("xattr", "set", "/k", "user.leasefs.trash", "7d")
	run("touch", "/k/f")
	run("rm", "/k/f")
	if out := run("trash", "empty", "--older", "24h"); !strings.Contains(out, "removed 0 entries") {
		t.Errorf("what was just deleted is a day old: %s", out)
	}
	if out := run("trash", "empty", "--older", "0s"); !strings.Contains(out, "removed 1 entry") {
		t.Error(out)
	}
}
