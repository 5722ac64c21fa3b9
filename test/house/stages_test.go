package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// testsOf returns the names of the tests in a folder.
func testsOf(t *testing.T, dir string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests (%v)", dir, err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// TestLongTests reads which tests the Makefile leaves to the long stage: each name is that of a
// test which that stage runs, and of no test elsewhere, which no stage would run; and all tests that
// need Chromium are among them, since make test does not install it.
func TestLongTests(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	list := func(name string) string {
		m := regexp.MustCompile(`(?m)^` + name + ` +\?= (.*)$`).FindSubmatch(makefile)
		if m == nil {
			t.Fatalf("the Makefile does not set %s", name)
		}
		return strings.ReplaceAll(string(m[1]), "$$", "$")
	}
	long := regexp.MustCompile(list("LONG"))
	page := testsOf(t, "test/page")
	for _, name := range page {
		if !long.MatchString(name) {
			t.Errorf("%s, which needs Chromium, is not in LONG: make test would run it, and installs no Chromium", name)
		}
	}
	looks := []string{"test/page", "test/e2e", "namenode", "internal/journal/zk", "test/sim"}
	var run []string
	for _, dir := range looks {
		run = append(run, testsOf(t, dir)...)
	}
	skipped := regexp.MustCompile(list("LONG") + "|" + list("LONG_FULL"))
	if err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, d fs.DirEntry, err error) error {
		switch dir := filepath.ToSlash(strings.TrimPrefix(path, filepath.Join("..", "..")+string(filepath.Separator))); {
		case err != nil || !d.IsDir():
		case strings.HasPrefix(d.Name(), ".") && d.Name() != "..":
			return fs.SkipDir
		case !slices.Contains(looks, dir):
			if files, _ := filepath.Glob(filepath.Join(path, "*_test.go")); len(files) == 0 {
				break
			}
			for _, name := range testsOf(t, dir) {
				if skipped.MatchString(name) {
					t.Errorf("%s of %s has a name that make test skips, and the long stage does not look there: give it another name", name, dir)
				}
			}
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, lists := range []string{"FULL", "LONG", "LONG_FULL", "STORES"} {
		names := strings.TrimSuffix(strings.TrimPrefix(list(lists), "^Test("), ")$")
		for part := range strings.SplitSeq(names, "|") {
			one := regexp.MustCompile("^Test" + part + "$")
			if !slices.ContainsFunc(run, one.MatchString) {
				t.Errorf("%s names Test%s: no such test is where the long stage and the sweeps look", lists, part)
			}
		}
	}
}
