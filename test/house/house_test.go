// Package house holds limits on sizes: a package, a type and the library's FS stay
// small enough that one person can read them in an afternoon. It also holds the walks
// of docs/ARCHITECTURE.md to the code.
package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	maxLines   = 5000 // of a package: neither blank nor only a comment
	maxMethods = 40   // of a type
	maxFields  = 30   // of a struct
)

// TestSizes reads all product code: no tests, nothing generated, no benchmarks.
func TestSizes(t *testing.T) {
	lines, methods, fields := map[string]int{}, map[string]int{}, map[string]int{}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); rel != "." && strings.HasPrefix(name, ".") || rel == "test" || rel == filepath.Join("internal", "bench") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") || strings.HasSuffix(rel, ".pb.go") {
			return nil
		}
		src, err := os.ReadFile(path) //nolint:gosec // of this tree
		if err != nil {
			return err
		}
		pkg := filepath.ToSlash(filepath.Dir(rel))
		for line := range strings.Lines(string(src)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
				lines[pkg]++
			}
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, src, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		count(file, pkg, methods, fields)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) < 20 || methods["client.FS"] == 0 || fields["namenode.Server"] == 0 {
		t.Fatalf("this is not the tree: %d packages, %d methods of client.FS", len(lines), methods["client.FS"])
	}
	for what, sizes := range map[string]struct {
		of  map[string]int
		max int
	}{"lines": {lines, maxLines}, "methods": {methods, maxMethods}, "fields": {fields, maxFields}} {
		for name, n := range sizes.of {
			if n > sizes.max {
				t.Errorf("%s has %d %s, at most %d are wanted: part it by what it does", name, n, what, sizes.max)
			}
		}
	}
}

// count adds the methods and fields that a file declares, by package and type.
func count(file *ast.File, pkg string, methods, fields map[string]int) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil && len(d.Recv.List) == 1 {
				methods[pkg+"."+receiver(d.Recv.List[0].Type)]++
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				ts, ok := spec.(*ast.TypeSpec)
				if !ok {
					continue
				}
				if st, ok := ts.Type.(*ast.StructType); ok {
					for _, f := range st.Fields.List {
						fields[pkg+"."+ts.Name.Name] += max(len(f.Names), 1)
					}
				}
			}
		}
	}
}

// receiver is the name of a method's type.
func receiver(x ast.Expr) string {
	for {
		switch e := x.(type) {
		case *ast.StarExpr:
			x = e.X
		case *ast.IndexExpr:
			x = e.X
		case *ast.IndexListExpr:
			x = e.X
		case *ast.Ident:
			return e.Name
		default:
			return "?"
		}
	}
}
