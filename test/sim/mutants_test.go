//go:build mutants

package sim_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/test/sim/mutant"
)

// change is one edit of a source file: old, which stands there once, becomes new.
type change struct{ file, old, new string }

// mutation is a fault that is built into the product to see that a world finds it.
type mutation struct {
	name    string // as new asks mutant.On for it
	changes []change
	// seed and seeds are the worlds that are tried in TestMutants: in one of them
	// it is found.
	seed, seeds uint64
	// faults are the ones that fail there, by a regular expression; empty: all.
	faults string
	// says is a part of what the world reports.
	says string
}

// TestMutants builds each fault of the table into the product and sees that the
// worlds find it: a promise that is checked so loosely that a fault passes is not
// checked.
func TestMutants(t *testing.T) {
	program := buildMutants(t)
	run := func(name, faults string, seed, seeds uint64) (string, error) {
		cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestWorlds$", "-test.v",
			"-seed", strconv.FormatUint(seed, 10), "-seeds", strconv.FormatUint(seeds, 10), "-length", mutantLength, "-faults", faults)
		cmd.Env = append(os.Environ(), mutant.Env+"="+name, "TMPDIR="+t.TempDir())
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	t.Run("none", func(t *testing.T) {
		if out, err := run("", "", 1, 1); err != nil {
			t.Fatalf("without a fault: %v\n%s", err, out)
		}
	})
	for _, m := range mutations {
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			if m.seeds == 0 {
				m.seed, m.seeds = 1, 12
			}
			out, err := run(m.name, m.faults, m.seed, m.seeds)
			if err == nil {
				t.Fatalf("%q is not found with seeds %d to %d", m.name, m.seed, m.seed+m.seeds-1)
			}
			if !strings.Contains(out, "breaks promises") || !strings.Contains(out, m.says) {
				t.Fatalf("%q ends the world without %q:\n%s", m.name, m.says, out[max(0, len(out)-4000):])
			}
			if testing.Verbose() {
				t.Log(out)
			}
		})
	}
}

// mutantLength is how long the world of a mutant is.
const mutantLength = "3m"

// buildMutants builds the tests of this package with all faults in it.
func buildMutants(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string]string{}
	for _, m := range mutations {
		for _, c := range m.changes {
			if !strings.Contains(c.new, strconv.Quote(m.name)) {
				t.Fatalf("%q: the change of %s does not ask for it", m.name, c.file)
			}
			text, ok := files[c.file]
			if !ok {
				raw, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(c.file)))
				if err != nil {
					t.Fatal(err)
				}
				text = strings.Replace(string(raw), "import (", "import (\n\t\"github.com/leasefs/leasefs/test/sim/mutant\"", 1)
			}
			if n := strings.Count(text, c.old); n != 1 {
				t.Fatalf("%q: %s has %d times, not once: %s", m.name, c.file, n, c.old)
			}
			files[c.file] = strings.Replace(text, c.old, c.new, 1)
		}
	}
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for name, text := range files {
		copied := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		original, err := filepath.Abs(filepath.Join("..", "..", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		overlay.Replace[original] = copied
	}
	raw, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "sim.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-c", "-overlay", list, "-o", program, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, bytes.TrimSpace(out))
	}
	return program
}
