package house

import (
	"go/ast"
	"go/parser"
	"go/token"
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
// test which that stage runs, and all tests that need Chromium are among them, since make test does
// not install it.
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
	run := slices.Concat(page, testsOf(t, "test/e2e"), testsOf(t, "namenode"), testsOf(t, "internal/journal/zk"), testsOf(t, "test/sim"))
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
