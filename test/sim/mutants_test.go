//go:build mutants

package sim_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	// test finds it; empty: TestWorlds, which all that follows is about.
	test string
	// faults are the ones that fail in its worlds, by a regular expression; empty: all.
	faults string
	// seed is the first of the worlds that look for it, the one that was measured to find
	// it most reliably; 0: none is known to, and only -tally tries it.
	seed uint64
}

// tally measures what the table in docs/TESTING.md says, and seeds for mutations.
var tally = flag.Uint64("tally", 0, "of TestMutants: try each fault in the worlds of seeds 1 to so many, and tell which of them find it")

// mutantTries is how many worlds, of seeds one after another, or runs of a test look for a
// mutation until one finds it: neither fixes each interleaving.
const mutantTries = 6

// mutantLength is how long the world of a mutant is.
const mutantLength = "3m"

// TestMutants builds each fault of the table into the product and sees that the
// worlds find it: a promise that is checked so loosely that a fault passes is not
// checked.
func TestMutants(t *testing.T) {
	program := buildMutants(t)
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if _, err := runMutant(t, program, mutation{}, 1); err != nil {
			t.Fatalf("without a fault: %v", err)
		}
	})
	for _, m := range mutations {
		if m.seed == 0 && m.test == "" && *tally == 0 {
			continue
		}
		t.Run(strings.ReplaceAll(m.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			if *tally > 0 && m.test == "" {
				var finders []uint64
				for seed := uint64(1); seed <= *tally; seed++ {
					if found, _ := runMutant(t, program, m, seed); found {
						finders = append(finders, seed)
					}
				}
				t.Logf("| %s | %d of %d | %v", m.name, len(finders), *tally, finders)
				return
			}
			for try := range uint64(mutantTries) {
				if found, _ := runMutant(t, program, m, m.seed+try); found {
					return
				}
			}
			t.Fatalf("%q is not found: either a promise is not checked any more, or the worlds of the seeds in mutations_test.go are others now; -tally 12 finds seeds", m.name)
		})
	}
}

// runMutant runs the world of a fault, and reports whether it breaks a promise.
func runMutant(t *testing.T, program string, m mutation, seed uint64) (found bool, err error) {
	t.Helper()
	test := cmp.Or(m.test, "TestWorlds")
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^"+test+"$", "-test.v", "-first",
		"-seed", strconv.FormatUint(seed, 10), "-seeds", "1", "-length", mutantLength, "-faults", m.faults)
	cmd.Env = append(os.Environ(), mutant.Env+"="+m.name, "GOMAXPROCS=1") // one thread: interleavings differ least
	out, err := cmd.CombinedOutput()
	if err == nil {
		return false, nil
	}
	says := `seed \d+ breaks a promise: .*`
	if m.test != "" {
		says = `\w+_test\.go:\d+: .*`
	}
	if what := regexp.MustCompile(says).Find(out); what != nil {
		t.Logf("%s", what)
		return true, err
	}
	t.Fatalf("%q: the world of seed %d ends otherwise than by a broken promise: %v\n%s", m.name, seed, err, out[max(0, len(out)-4000):])
	return false, err
}

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

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
					t.Errorf("%q: its file is gone: %v", m.name, err)
					continue
				}
				text = packageClause.ReplaceAllString(string(raw), "$0\nimport \"github.com/leasefs/leasefs/test/sim/mutant\"\n")
			}
			if n := strings.Count(text, c.old); n != 1 {
				t.Errorf("%q: %s has %d times, not once: %s", m.name, c.file, n, c.old)
			}
			files[c.file] = strings.Replace(text, c.old, c.new, 1)
		}
	}
	if t.Failed() {
		t.FailNow()
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
	cmd := exec.CommandContext(t.Context(), "go", "test", "-vet=off", "-ldflags=-s -w", "-c", "-overlay", list, "-o", program, ".")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, bytes.TrimSpace(out))
	}
	return program
}
