package house

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const (
	module    = "github.com/leasefs/leasefs/"
	walksPage = "docs/ARCHITECTURE.md"
	leastWalk = 8 // steps
	mostWalk  = 16
)

// crossing is a way to reach a step other than a plain call.
type crossing struct {
	named    bool // the step before names the function all the same
	imported bool // and its package imports that of the function
}

var (
	plainCall = crossing{named: true, imported: true}
	crossings = map[string]crossing{
		"gRPC": {}, "HTTP": {}, "kernel": {}, "channel": {}, "callback": {},
		"interface": {named: true},
		"goroutine": plainCall,
	}
)

// step is a function of a walk, and how it is reached.
type step struct {
	file, fn string // fn is Func or Type.Func
	by       crossing
}

func (s step) pkg() string { return path.Dir(s.file) }

// name is the function's identifier.
func (s step) name() string { return s.fn[strings.LastIndexByte(s.fn, '.')+1:] }

func (s step) String() string { return s.file + ":" + s.fn }

type walk struct {
	name  string
	steps []step
}

// TestWalks holds each step of the walks to the code: the function exists, the one before
// names it and stands above it, and the walk only goes down.
func TestWalks(t *testing.T) {
	root := filepath.Join("..", "..")
	page, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(walksPage)))
	if err != nil {
		t.Fatal(err)
	}
	walks, err := parseWalks(string(page))
	if err != nil {
		t.Fatal(err)
	}
	if len(walks) < 10 {
		t.Errorf("%s has %d walks, at least 10 are wanted", walksPage, len(walks))
	}
	code := source{fsys: os.DirFS(root)}
	for _, w := range walks {
		for _, err := range code.check(w) {
			t.Errorf("%s, walk %s: %v", walksPage, w.name, err)
		}
	}
}

// TestWalkErrors gives each error that a walk can have once.
func TestWalkErrors(t *testing.T) {
	code := source{fsys: os.DirFS(filepath.Join("testdata", "walks"))}
	for _, c := range []struct{ steps, want string }{
		{"`a/a.go:Above` → `a/a.go:T.Below` → `b/b.go:F`", ""},
		{"`a/a.go:Renamed` → `b/b.go:F`", "a/a.go has no Renamed; name the function that does this step now"},
		{"`a/gone.go:Above` → `b/b.go:F`", "there is no a/gone.go; name the file and the function that do this step now"},
		{"`a/a.go:Above` → `b/b.go:F`", "a/a.go:Above does not name F; name the function that it calls now, or how F is reached"},
		{"`a/a.go:T.Below` → `a/a.go:Above`", "a/a.go:T.Below stands below a/a.go:Above, which it calls; move the latter below it"},
		{"`b/b.go:F` → `a/a.go:Above`", "b does not import a, so b/b.go:F cannot call a/a.go:Above; say how it is reached, or walk another way"},
		{"`b/b.go:F` → `a/a.go:Above` (interface)", ""},
		{"`a/a.go:T.Below` → `b/b.go:F` → `a/a.go:Above` (callback)", "it returns to a, which it has left, at a/a.go:Above; walk only down"},
	} {
		walks, err := parseWalks("## Ten walks\n\n**x**: y.\n\n" + c.steps)
		if err != nil {
			t.Fatal(err)
		}
		short := fmt.Sprintf("it has %d steps; give it %d to %d", len(walks[0].steps), leastWalk, mostWalk)
		var got []string
		for _, err := range code.check(walks[0]) {
			got = append(got, err.Error())
		}
		if len(got) == 0 || got[0] != short {
			t.Errorf("%s: not %q first: %q", c.steps, short, got)
			continue
		}
		got = got[1:]
		if strings.Join(got, "\n") != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.steps, got, c.want)
		}
	}
	for _, c := range []struct{ page, want string }{
		{"# A page\n", walksPage + ` has no section "Ten walks"`},
		{"## Ten walks\n\n**x**: y.\n\n`a/a.go:F` → somewhere", walksPage + `, walk x: "somewhere" is no step; write ` + "`dir/file.go:Func` or `dir/file.go:Type.Func`"},
		{"## Ten walks\n\n**x**: y.\n\n`a/a.go:F` (magic)", walksPage + `, walk x: "magic" is no way to reach a step; see the head of the section`},
		{"## Ten walks\n\n**x**: y.", walksPage + ", walk x: it has no steps; put them into the paragraph after its sentence"},
	} {
		if _, err := parseWalks(c.page); err == nil || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.page, err, c.want)
		}
	}
}

var (
	walkHead = regexp.MustCompile(`^\*\*(.+)\*\*: `)
	walkStep = regexp.MustCompile("^`([^`:]+\\.go):(\\w+(?:\\.\\w+)?)`(?: \\((\\w+)\\))?$")
)

// parseWalks reads the section: a walk is a paragraph with its name and what it does, and
// one with its steps.
func parseWalks(page string) (walks []walk, err error) {
	_, section, ok := strings.Cut(page, "## Ten walks\n")
	if !ok {
		return nil, fmt.Errorf("%s has no section \"Ten walks\"", walksPage)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	paragraphs := strings.Split(section, "\n\n")
	for i, p := range paragraphs {
		head := walkHead.FindStringSubmatch(strings.TrimSpace(p))
		if head == nil {
			continue
		}
		w := walk{name: head[1]}
		if i+1 == len(paragraphs) {
			return nil, fmt.Errorf("%s, walk %s: it has no steps; put them into the paragraph after its sentence", walksPage, w.name)
		}
		for _, text := range strings.Split(paragraphs[i+1], "→") {
			text = strings.TrimSpace(text)
			m := walkStep.FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("%s, walk %s: %q is no step; write `dir/file.go:Func` or `dir/file.go:Type.Func`", walksPage, w.name, text)
			}
			s := step{file: m[1], fn: m[2], by: plainCall}
			if m[3] != "" {
				if s.by, ok = crossings[m[3]]; !ok {
					return nil, fmt.Errorf("%s, walk %s: %q is no way to reach a step; see the head of the section", walksPage, w.name, m[3])
				}
			}
			w.steps = append(w.steps, s)
		}
		walks = append(walks, w)
	}
	return walks, nil
}

// source is the code that walks are held to.
type source struct{ fsys fs.FS }

// check returns what is wrong with a walk.
func (c source) check(w walk) (wrong []error) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if n := len(w.steps); n < leastWalk || n > mostWalk {
		bad("it has %d steps; give it %d to %d", n, leastWalk, mostWalk)
	}
	left := map[string]bool{}
	var caller *ast.FuncDecl
	for i, s := range w.steps {
		callee, err := c.find(s)
		if err != nil {
			bad("%w", err)
		}
		if i > 0 {
			before := w.steps[i-1]
			if s.pkg() != before.pkg() {
				left[before.pkg()] = true
			}
			if left[s.pkg()] {
				bad("it returns to %s, which it has left, at %s; walk only down", s.pkg(), s)
			}
			if caller != nil && callee != nil {
				if s.by.named && !names(caller, s.name()) {
					bad("%s does not name %s; name the function that it calls now, or how %s is reached", before, s.name(), s.name())
				}
				if s.file == before.file && callee.Pos() <= caller.Pos() {
					bad("%s stands below %s, which it calls; move the latter below it", before, s)
				}
			}
			if s.by.imported && s.pkg() != before.pkg() {
				ok, err := c.imports(before.pkg(), s.pkg())
				switch {
				case err != nil:
					bad("%w", err)
				case !ok:
					bad("%s does not import %s, so %s cannot call %s; say how it is reached, or walk another way", before.pkg(), s.pkg(), before, s)
				}
			}
		}
		caller = callee
	}
	return wrong
}

// find returns the declaration of a step's function. Positions in the same file can be
// compared.
func (c source) find(s step) (*ast.FuncDecl, error) {
	file, err := c.parse(s.file, parser.SkipObjectResolution)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no %s; name the file and the function that do this step now", s.file)
	}
	if err != nil {
		return nil, err
	}
	for _, decl := range file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		name := fn.Name.Name
		if fn.Recv != nil && len(fn.Recv.List) == 1 {
			name = receiver(fn.Recv.List[0].Type) + "." + name
		}
		if name == s.fn {
			return fn, nil
		}
	}
	return nil, fmt.Errorf("%s has no %s; name the function that does this step now", s.file, s.fn)
}

// imports reports whether a file of a package, other than a test, imports another.
func (c source) imports(pkg, other string) (bool, error) {
	files, err := fs.Glob(c.fsys, pkg+"/*.go")
	if err != nil {
		return false, err
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := c.parse(name, parser.ImportsOnly)
		if err != nil {
			return false, err
		}
		for _, spec := range file.Imports {
			if what, err := strconv.Unquote(spec.Path.Value); err == nil && what == module+other {
				return true, nil
			}
		}
	}
	return false, nil
}

func (c source) parse(name string, mode parser.Mode) (*ast.File, error) {
	src, err := fs.ReadFile(c.fsys, name)
	if err != nil {
		return nil, err
	}
	return parser.ParseFile(token.NewFileSet(), name, src, mode)
}

// names reports whether the body of a function names an identifier.
func names(fn *ast.FuncDecl, name string) (found bool) {
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == name
		return !found
	})
	return found
}
