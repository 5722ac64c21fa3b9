//go:build torture

package torture

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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

// build builds the program into dir, and returns its path.
func build(t *testing.T, dir string) string {
	t.Helper()
	source, err := filepath.Abs("../../internal/clock")
	if err != nil {
		t.Fatal(err)
	}
	original := filepath.Join(source, "clock.go")
	text, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(text), wall) != 1 {
		t.Fatalf("%s does not have this once: %s", original, wall)
	}
	replace := map[string]string{original: filepath.Join(dir, "clock.go"), filepath.Join(source, "step.go"): filepath.Join(dir, "step.go")}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"clock.go": strings.Replace(string(text), wall, stepped, 1), "step.go": steps, "overlay.json": string(overlay),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "leasefs")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", program, "../../cmd/leasefs")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}
