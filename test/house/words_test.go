package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// commandLine finds a flag, a variable of the environment, or the program's name
	// before a word that may be a command.
	commandLine = regexp.MustCompile(`(?:^|[\s"'(\[=])(--[a-z][a-z-]+)|\b(LEASEFS_[A-Z]+)|\bleasefs ([a-z]+)`)
	commandName = regexp.MustCompile(`(?m)^\t*(?:&cli\.Command\{)?Name:\s*"([a-z]+)",$`)
)

// TestLibrariesKnowNoCommandLine: what a library says and explains is in its own
// terms; cmd/leasefs adds commands and flags, by kind and reason.
func TestLibrariesKnowNoCommandLine(t *testing.T) {
	root := filepath.Join("..", "..")
	commands := map[string]bool{}
	files, err := filepath.Glob(filepath.Join(root, "cmd", "leasefs", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		src, err := os.ReadFile(f) //nolint:gosec // of this tree
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range commandName.FindAllStringSubmatch(string(src), -1) {
			commands[m[1]] = true
		}
	}
	if !commands["admin"] || !commands["lease"] || !commands["namenode"] {
		t.Fatalf("these are not the commands: %v", commands)
	}
	for _, dir := range []string{"client", "fuse", "gateway", "internal", "leasemanager", "namenode"} {
		if err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			for _, text := range said(t, path) {
				if words := wordsOfCommands(text, commands); len(words) > 0 {
					t.Errorf("%s says %q in %.80q: say it in the library's own terms, with a Reason for which cmd/leasefs has a hint", path, words, text)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// said returns the strings and comments of a file.
func said(t *testing.T, path string) (texts []string) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range file.Comments {
		texts = append(texts, c.Text())
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		return true
	})
	return texts
}

// wordsOfCommands returns what a text has of the command line.
func wordsOfCommands(text string, commands map[string]bool) (words []string) {
	for _, m := range commandLine.FindAllStringSubmatch(text, -1) {
		switch {
		case m[1]+m[2] != "":
			words = append(words, m[1]+m[2])
		case commands[m[3]]:
			words = append(words, "leasefs "+m[3])
		}
	}
	return words
}

func TestWordsOfCommands(t *testing.T) {
	commands := map[string]bool{"admin": true, "lease": true}
	for text, want := range map[string]string{
		"name it with --blocks":             "--blocks",
		"(--user says who asks)":            "--user",
		"or LEASEFS_NAMENODE":               "LEASEFS_NAMENODE",
		"see leasefs admin fsck --blocks":   "leasefs admin,--blocks",
		"the leasefs that wrote it":         "",
		"leasefs block 1":                   "",
		"none -- as ever":                   "",
		"a fault of leasefs itself; lease.": "",
	} {
		if got := strings.Join(wordsOfCommands(text, commands), ","); got != want {
			t.Errorf("%q has %q, want %q", text, got, want)
		}
	}
}
