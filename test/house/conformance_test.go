package house

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const conformancePage = "docs/CONFORMANCE.md"

var (
	pageTest = regexp.MustCompile("`(?:([a-z0-9/]+)\\.)?(Test\\w+|Fuzz\\w+)`") // folder, name
	verdict  = regexp.MustCompile(`^(same|differs: .|does not apply: .)`)
)

// TestConformancePage holds each row of docs/CONFORMANCE.md to the code: its verdict is
// one of three, with a reason if it is not "same", and the tests that it names exist.
func TestConformancePage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(conformancePage)))
	if err != nil {
		t.Fatal(err)
	}
	folders := testFolders(t)
	rows, same, differs := 0, 0, 0
	for i, line := range strings.Split(string(text), "\n") {
		at := conformancePage + ":" + strconv.Itoa(i+1)
		for _, m := range pageTest.FindAllStringSubmatch(lastCell(line), -1) {
			folder, name := m[1], m[2]
			in := folders[name]
			switch {
			case len(in) == 0:
				t.Errorf("%s: there is no %s", at, name)
			case folder == "" && len(in) > 1:
				t.Errorf("%s: %s is in %s: say FOLDER.%s", at, name, strings.Join(in, ", "), name)
			case folder != "" && !slices.Contains(in, folder):
				t.Errorf("%s: %s is in %s, not in %s", at, name, strings.Join(in, ", "), folder)
			}
		}
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| source test ") {
			continue
		}
		rows++
		cells := strings.Split(strings.Trim(line, "| "), " | ")
		if len(cells) != 4 {
			t.Errorf("%s: %d cells, want source test, what it checks, here, test", at, len(cells))
			continue
		}
		here := cells[2]
		switch {
		case !verdict.MatchString(here):
			t.Errorf("%s: %q is neither \"same\" nor \"differs: why\" nor \"does not apply: why\"", at, here)
		case strings.HasPrefix(here, "same"):
			same++
		case strings.HasPrefix(here, "differs"):
			differs++
		}
		if tests := cells[3]; !pageTest.MatchString(tests) && !(tests == "–" && strings.HasPrefix(here, "does not apply")) {
			t.Errorf("%s: no test is named", at)
		}
	}
	sum := fmt.Sprintf("%d rows: %d are the same here, %d differ on purpose, %d do not apply", rows, same, differs, rows-same-differs)
	if !strings.Contains(string(text), sum) {
		t.Errorf("%s does not say %q", conformancePage, sum)
	}
}

// lastCell is the last cell of a table's row, and "" for any other line.
func lastCell(line string) string {
	if !strings.HasPrefix(line, "|") {
		return ""
	}
	cells := strings.Split(strings.TrimRight(line, "| "), " | ")
	return cells[len(cells)-1]
}

// testFolders are the folders in which each test function of this module is.
func testFolders(t *testing.T) map[string][]string {
	t.Helper()
	root := filepath.Join("..", "..")
	folders := map[string][]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if strings.HasPrefix(d.Name(), ".") && name != root {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		folder := path.Dir(filepath.ToSlash(rel))
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if ok && f.Recv == nil && (strings.HasPrefix(f.Name.Name, "Test") || strings.HasPrefix(f.Name.Name, "Fuzz")) {
				folders[f.Name.Name] = append(folders[f.Name.Name], folder)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}
