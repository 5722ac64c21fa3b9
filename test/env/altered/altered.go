// Package altered builds the program from sources that tests have changed, in an overlay: no
// file of the tree changes.
package altered

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Change is one of a source file.
type Change struct {
	File     string // its path in the tree, with slashes
	Old, New string // New takes the place of Old, which is there once; without Old it is a file of its own
}

// Build builds the program of a source tree into dir, and returns its path.
func Build(t testing.TB, tree, dir string, changes ...Change) string {
	t.Helper()
	tree, err := filepath.Abs(tree)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{} // by path
	for _, c := range changes {
		path := filepath.Join(tree, filepath.FromSlash(c.File))
		if c.Old == "" {
			texts[path] = c.New
			continue
		}
		text, ok := texts[path]
		if !ok {
			raw, err := os.ReadFile(path) //nolint:gosec // of the test
			if err != nil {
				t.Fatal(err)
			}
			text = string(raw)
		}
		if strings.Count(text, c.Old) != 1 {
			t.Fatalf("%s does not have this once: %s", path, c.Old)
		}
		texts[path] = strings.Replace(text, c.Old, c.New, 1)
	}
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, text := range texts {
		overlay.Replace[path] = write(fmt.Sprintf("altered%d.go", len(overlay.Replace)), []byte(text))
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "leasefs")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-overlay", write("overlay.json", raw), "-o", program, "./cmd/leasefs") //nolint:gosec // the test's own
	cmd.Dir = tree
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}
