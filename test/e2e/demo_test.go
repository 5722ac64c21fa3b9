package e2e_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The demo succeeds and leaves neither a folder nor a process.
func TestDemo(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	temp := t.TempDir()
	p := start(ctx, t, spec{argv: []string{"../../scripts/demo"}, env: []string{"LEASEFS=" + leasefs, "TMPDIR=" + temp, "LEASEFS_DEMO_SOFT=20"}, stdin: reader("")})
	p.ends(ctx, 0)
	names(t, p.out.String(), "held by writer-a", "All as promised.")
	if p.err.String() != "" {
		t.Errorf("stderr: %s", p.err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	environs, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range environs {
		env, err := os.ReadFile(e)
		if err == nil && bytes.Contains(env, []byte("TMPDIR="+temp+"\x00")) {
			cmd, _ := os.ReadFile(filepath.Join(filepath.Dir(e), "cmdline"))
			t.Errorf("still running: %q", cmd)
		}
	}
}
