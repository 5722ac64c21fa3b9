package steps

import (
	"slices"
	"strings"
	"testing"
)

func TestSplit(t *testing.T) {
	for line, want := range map[string][]string{
		`create /a`:            {"create", "/a"},
		"create\t /a   b":      {"create", "/a", "b"},
		`create "/a b" "\"\n"`: {"create", "/a b", "\"\n"},
		`create /a ""`:         {"create", "/a", ""},
		`create /a b"c"`:       {"create", "/a", `b"c"`},
		`create "\xff\u00e9"`:  {"create", "\xffé"},
	} {
		if got, err := split(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v", line, got, err)
		}
	}
	for _, line := range []string{`create "/a`, `create "/a"b`, `create "\q"`, `"`} {
		if got, err := split(line); err == nil {
			t.Errorf("%s: %q", line, got)
		}
	}
}

func TestParse(t *testing.T) {
	script, err := Parse(0o755, "\ufeff# a comment\n\nif missing /a\nif lease a1\n", "create -p -m 600 --lease 1f /a -not-a-flag\r\n  mv --overwrite /b /c", "create -- -x", "xattr set /d user.a ''")
	if err != nil || len(script.Compares) != 2 || len(script.Operations) != 4 || len(script.Leases) != 1 {
		t.Fatal(script, err)
	}
	for text, want := range map[string]string{
		"nothing":              `line 1: there is no step "nothing"; steps are attach, create, detach, if epoch`,
		"if":                   `line 1: there is no step "if"`,
		"if sure /a":           `line 1: there is no step "if"`,
		"rm /a\n\nrm":          "line 3: 0 words behind the name do not fit; the step is rm PATH",
		"rm /a /b":             "line 1: 2 words behind the name do not fit",
		"rm -r /a":             "line 1: -r is no option here, or lacks its value; the step is rm PATH",
		"create -m":            "line 1: -m is no option here, or lacks its value",
		"create -m 9 /a":       `line 1: -m: "9" is not an octal mode from 0 to 1777`,
		`create --lease "" /a`: "line 1: the LEASE is empty",
		`attach "" /a`:         "line 1: the LEASE is empty",
		"create /a b c":        "3 words",
		"if length /a -1":      `"-1" is no number`,
		"if inode /a 1e9":      `"1e9" is no number`,
		`create /a "no end`:    `line 1: "no end has no end`,
	} {
		if _, err := Parse(0o755, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// FuzzParse: whatever is written, it is taken or refused; what is taken has as many steps
// as lines.
func FuzzParse(f *testing.F) {
	for _, form := range forms {
		f.Add(form.usage)
	}
	f.Add("if exists /a\ncreate /b \"x\\n\"\n# c")
	f.Fuzz(func(t *testing.T, text string) {
		script, err := Parse(0o755, text)
		if err != nil {
			return
		}
		if n := len(script.Compares) + len(script.Operations); n > strings.Count(text, "\n")+1 || len(script.Leases) > n {
			t.Fatalf("%q has %d steps and names %d leases", text, n, len(script.Leases))
		}
	})
}
