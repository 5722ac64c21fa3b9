package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/leasefs/leasefs/internal/fserror"
)

// A program outside of this module can match every kind by a name of this
// package, since it cannot import the internal one.
func TestEveryKindHasAName(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok {
			value := spec.Values[0].(*ast.SelectorExpr).Sel.Name
			if name := spec.Names[0].Name; name != "Err"+value {
				t.Errorf("%s is fserror.%s", name, value)
			}
			names[value] = true
		}
		return true
	})
	if len(names) != int(fserror.Kinds) {
		t.Errorf("errors.go names %d of %d kinds", len(names), fserror.Kinds)
	}
}
