package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestMutationsFit: each text that a mutation of test/sim replaces stands once in its file. The stage
// that builds them in would say so much later.
func TestMutationsFit(t *testing.T) {
	root := filepath.Join("..", "..")
	parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "test", "sim", "mutations_test.go"), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	texts := 0
	ast.Inspect(parsed, func(n ast.Node) bool {
		change, ok := n.(*ast.CompositeLit)
		if !ok || len(change.Elts) != 3 { // its file, what is replaced, and by what
			return true
		}
		var parts []string
		for _, e := range change.Elts {
			if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
				part, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				parts = append(parts, part)
			}
		}
		if len(parts) != 3 {
			return true
		}
		source, err := os.ReadFile(filepath.Join(root, parts[0]))
		if err != nil {
			t.Error(err)
		} else if n := strings.Count(string(source), parts[1]); n != 1 {
			t.Errorf("%s has %d times, not once, what a mutation replaces: %s", parts[0], n, parts[1])
		}
		texts++
		return true
	})
	if texts < 40 {
		t.Errorf("%d texts are found; are they written in another way now?", texts)
	}
}
