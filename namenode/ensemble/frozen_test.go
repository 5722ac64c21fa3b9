package ensemble

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/namenode/namespace/levels"
)

// TestFrozenFormat: the node format as a release of each level wrote it, a line each, is read for
// ever, and is still written so.
func TestFrozenFormat(t *testing.T) {
	raw, err := os.ReadFile("../../testdata/frozen/format.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := []levels.State{{Level: 1}, {Level: 2, Release: "level-2"}, {Level: 2, Release: "level-2"}} // the last of a restore
	for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		f, id, err := ParseFormat("format", []byte(line))
		if err != nil || id[1] != 0x11 || f.At() != all[i] || f.By != "leasefs level-1" || f.Created != "2026-11-28T19:38:32Z" || (f.Image == 42) != (i == 2) {
			t.Errorf("%s: %+v, %v", line, f, err)
		}
		if written, err := json.Marshal(f); err != nil || string(written) != line {
			t.Errorf("%s is now written as %s, %v", line, written, err)
		}
	}
}
