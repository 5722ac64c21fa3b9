package machine

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

// A limit of any of the control groups counts.
func TestGroupLimit(t *testing.T) {
	root := t.TempDir()
	for name, limit := range map[string]string{"system.slice/m.service": "max", "system.slice": "1073741824", ".": "2147483648"} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name, "memory.max"), []byte(limit+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]int64{
		"0::/system.slice/m.service\n": 1 << 30, "1:memory:/a\n0::/\n": 2 << 30, "0::/user.slice/x\n": 2 << 30, "": math.MaxInt64,
	} {
		if got := groupLimit(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
}
