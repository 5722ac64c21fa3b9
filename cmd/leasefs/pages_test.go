package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

const root = "../../"

// pages are what people read: README.md, CONTRIBUTING.md and all of docs.
func pages(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md"} {
		names, err := filepath.Glob(root + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all[strings.TrimPrefix(name, root)] = string(text)
		}
	}
	if len(all) < 20 {
		t.Fatalf("%d pages", len(all))
	}
	return all
}

var (
	inCode   = regexp.MustCompile("`(?:sudo )?(leasefs [^`]+)`")
	block    = regexp.MustCompile("(?ms)^```.*?^```$|^    leasefs .*?$")
	inBlock  = regexp.MustCompile(`(?m)^(?:    |\$ )?(leasefs .+)$`)
	endsHere = regexp.MustCompile(`^[<>|&;#]|;$`)
)

// TestPagesHaveCommands: each command that a reader is told to give is one, with
// flags that it has.
func TestPagesHaveCommands(t *testing.T) {
	texts := pages(t)
	rules, err := os.ReadFile(deploy + "prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	texts["prometheus-alerts.yml"] = string(rules)
	n := 0
	for name, text := range texts {
		if strings.HasPrefix(name, "docs/design/") {
			continue // formats, in which leasefs is a word as others
		}
		blocks := strings.Join(block.FindAllString(text, -1), "\n")
		for _, m := range append(inCode.FindAllStringSubmatch(text, -1), inBlock.FindAllStringSubmatch(blocks, -1)...) {
			n++
			if wrong := wrongIn(testApp(t), strings.Fields(m[1])[1:]); wrong != "" {
				t.Errorf("%s: %s: there is no %s", name, m[1], wrong)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d commands", n)
	}
}

// wrongIn is the first command or long flag of a command line that app does not
// have. Words in capitals or brackets stand for any.
func wrongIn(app *cli.App, words []string) string {
	list, flags := app.Commands, append([]cli.Flag{cli.HelpFlag, cli.VersionFlag}, app.Flags...)
	runs := false  // the command does something without one of its own commands
	value := false // the next word is that of a flag
	for _, word := range words {
		name, isFlag := strings.CutPrefix(strings.Trim(word, "[]"), "--")
		at := slices.IndexFunc(list, func(c *cli.Command) bool { return c.HasName(word) })
		switch {
		case value:
			value = false
		case word == "--", endsHere.MatchString(word):
			return ""
		case isFlag:
			name, _, given := strings.Cut(name, "=")
			at := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) })
			if at < 0 {
				return word
			}
			_, is := flags[at].(*cli.BoolFlag)
			value = !is && !given
		case at >= 0:
			flags = append(slices.Clone(flags), list[at].Flags...)
			runs, list = list[at].Action != nil, list[at].Subcommands
		case strings.HasPrefix(word, "["):
			return ""
		case len(list) > 0 && !runs && word != strings.ToUpper(word):
			return word
		}
	}
	return ""
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.*)$`)
	noAnchor = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// TestPagesLinkToWhatIsThere: each link within the project leads to a file, and to a
// heading of it.
func TestPagesLinkToWhatIsThere(t *testing.T) {
	for name, text := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(m[1], "#")
			if file == "" {
				file = filepath.Base(name)
			}
			file = filepath.Join(root, filepath.Dir(name), file)
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
				continue
			}
			if anchor == "" {
				continue
			}
			target, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(heading.FindAllStringSubmatch(string(target), -1), func(h []string) bool {
				return anchor == strings.ReplaceAll(noAnchor.ReplaceAllString(strings.ToLower(h[1]), ""), " ", "-")
			}) {
				t.Errorf("%s: %s: there is no such heading", name, m[1])
			}
		}
	}
}

var (
	quoted = regexp.MustCompile("(?m)^### `(.+)`$")
	joined = regexp.MustCompile(`" \+\s*"`)
)

// TestPagesQuoteErrors: the program can still say each error whose cause
// docs/TROUBLESHOOTING.md explains.
func TestPagesQuoteErrors(t *testing.T) {
	var source strings.Builder
	for _, dir := range []string{"client", "cmd", "fuse", "gateway", "internal", "leasemanager", "namenode"} {
		if err := filepath.WalkDir(root+dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			source.WriteString(joined.ReplaceAllString(string(text), ""))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	errors := quoted.FindAllStringSubmatch(pages(t)["docs/TROUBLESHOOTING.md"], -1)
	if len(errors) < 20 {
		t.Errorf("%d errors", len(errors))
	}
	for _, e := range errors {
		// What differs each time is "…" there and a verb of fmt in the source.
		pattern := strings.ReplaceAll(regexp.QuoteMeta(e[1]), "…", `[^\n"]*?`)
		if !regexp.MustCompile(pattern).MatchString(source.String()) {
			t.Errorf("nothing says %q", e[1])
		}
	}
}
