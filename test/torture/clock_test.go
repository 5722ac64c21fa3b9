//go:build torture

package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/leasefs/leasefs/test/env/altered"
)

// stepVariable names the file that has the size of a clock's step.
const stepVariable = "LEASEFS_TORTURE_STEP"

// No process can have a time of day of its own: time namespaces do not have that
// clock, and Go asks the kernel for it past any library. So the program is built with
// these two changes of package clock.
const (
	wall    = "func (System) Wall() time.Time { return time.Now() }"
	stepped = "func (System) Wall() time.Time { return time.Now().Add(step()) }"

	steps = `package clock

import (
	"os"
	"time"
)

func step() time.Duration {
	text, _ := os.ReadFile(os.Getenv("` + stepVariable + `"))
	d, _ := time.ParseDuration(string(text))
	return d
}
`
)

// often has images written as often as on a busy namenode: the journal is purged up to the
// one before the last, so what is in ZooKeeper has teeth of a minute or two.
var often = altered.Change{File: "namenode/config.go", Old: "setDefault(&c.CheckpointBytes, 256<<20)", New: "setDefault(&c.CheckpointBytes, 4<<20)"}

// build builds the program of a source tree into dir, and returns its path.
func build(t *testing.T, tree, dir string) string {
	t.Helper()
	return altered.Build(t, tree, dir, often,
		altered.Change{File: "internal/clock/clock.go", Old: wall, New: stepped},
		altered.Change{File: "internal/clock/step.go", New: steps})
}

var lastReleaseLine = regexp.MustCompile(`(?m)^readonly last_release=([0-9a-f]{40})$`)

// lastRelease builds the program of the last release into dir, from its commit.
func lastRelease(t *testing.T, dir string) string {
	t.Helper()
	setup, err := os.ReadFile("../../scripts/setup")
	if err != nil {
		t.Fatal(err)
	}
	m := lastReleaseLine.FindSubmatch(setup)
	if m == nil {
		t.Fatal("scripts/setup names no last release")
	}
	tree := filepath.Join(dir, "tree")
	if err := os.MkdirAll(tree, 0o750); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", `git -C ../.. archive "$1" >"$2.tar"; tar -x -C "$2" -f "$2.tar"`, "sh", string(m[1]), tree)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the source of the last release: %v\n%s", err, out)
	}
	return build(t, tree, dir)
}
