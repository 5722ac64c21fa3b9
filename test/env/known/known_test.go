package known

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each line of the table names a test that exists and asks for its line, and a
// defect that docs/ROBUSTNESS.md lists as known.
func TestTable(t *testing.T) {
	tests := make(map[string]bool)
	calls := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\) \{\n\tif known\.Failure\(t\) \{`)
	err := filepath.WalkDir("../../..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".cache" { // other tests work in it
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path) //nolint:gosec // a file of this repository
		for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
			tests[call[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadFile("../../../docs/ROBUSTNESS.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, defect := range defects {
		if !tests[strings.SplitN(name, "/", 2)[0]] {
			t.Errorf("no test %s begins with known.Failure", name)
		}
		if defect.ID == "" || defect.Words == "" {
			t.Errorf("%s: the line lacks its defect or the words of its failure", name)
		}
		line := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(defect.ID) + ` \|.*` + regexp.QuoteMeta(name) + `.*\| known \|$`)
		if !line.Match(list) {
			t.Errorf("docs/ROBUSTNESS.md has no line | %s | … %s … | known |", defect.ID, name)
		}
	}
}

// The body of a test whose defect is known runs in a process of its own.
func TestFailure(t *testing.T) {
	const words = "the words of this failure"
	if os.Getenv(child) == t.Name() {
		t.Fatal(words)
	}
	defects[t.Name()] = Defect{ID: "X", Words: words}
	defer delete(defects, t.Name())
	if !Failure(t) {
		t.Error("the defect is not known")
	}
}

// A test that passes although its defect is known fails the run, and so does one
// that fails in another way than its line says.
func TestJudge(t *testing.T) {
	failed := exec.CommandContext(t.Context(), "false").Run()
	missing := exec.CommandContext(t.Context(), "/nowhere/program").Run()
	for _, test := range []struct {
		out, want string
		err       error
	}{
		{"ok", "X is mended", nil},
		{"late by 11s", "", failed},
		{"connection refused", "not as X does", failed},
		{"late by 11s", "run the body", missing},
	} {
		got := judge("TestX", Defect{ID: "X", Words: "late by"}, test.out, test.err)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("output %q, error %v: %q, want %q", test.out, test.err, got, test.want)
		}
	}
}
