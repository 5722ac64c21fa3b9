// Package known keeps the defects that are known and not mended yet. Each has a
// test that shows it: the test is written as if the defect were mended, begins with
//
//	if known.Failure(t) {
//		return
//	}
//
// and has a line in the table below. While the line is there, the test's body runs
// in a process of its own, where it has to fail with the words of the line. If it
// passes, or fails for another reason, the run fails. Whoever mends a defect
// removes its line, and the test runs like any other.
package known

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Defect is a promise that does not hold yet.
type Defect struct {
	ID    string // as in docs/ROBUSTNESS.md
	Words string // part of what its test says when it fails
}

// defects are the known ones, by the full name of the test that shows each.
var defects = map[string]Defect{}

const child = "LEASEFS_KNOWN_DEFECT" // names the test whose body this process runs

// Failure reports whether t's test shows a known defect. It then has run the test's
// body in another process and has judged the result; the caller returns. It is
// false in that other process and in a test without a line in the table.
func Failure(t *testing.T) bool {
	t.Helper()
	defect, ok := defects[t.Name()]
	if !ok || os.Getenv(child) == t.Name() {
		return false
	}
	// The names of subtests are joined by slashes, as in -test.run.
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", pattern, "-test.count=1", "-test.timeout=5m") //nolint:gosec // this test itself
	cmd.Env = append(os.Environ(), child+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if complaint := judge(t.Name(), defect, string(out), err); complaint != "" {
		t.Error(complaint)
	} else {
		t.Logf("known defect %s: %s", defect.ID, defect.Words)
	}
	return true
}

// judge says what is wrong with how a test ended whose defect is known: nothing if
// it failed with the words of its line.
func judge(name string, defect Defect, out string, err error) string {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return fmt.Sprintf("%s is mended: remove %s from the table in env/known and mark its line in docs/ROBUSTNESS.md", defect.ID, name)
	case !errors.As(err, &exit):
		return fmt.Sprintf("run the body of %s: %v", name, err)
	case !strings.Contains(out, defect.Words):
		return fmt.Sprintf("%s fails, but not as %s does (%q):\n%s", name, defect.ID, defect.Words, out)
	default:
		return ""
	}
}
