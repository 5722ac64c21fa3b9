package prove

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type given map[string]string

func (g given) String(name string) string { return g[name] }
func (g given) Bool(name string) bool     { return g[name] != "" }

// TestIssuers: what the flags and the file say is understood, or refused by its name.
func TestIssuers(t *testing.T) {
	dir := t.TempDir()
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "*.toml")
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		return f.Name()
	}
	const one = "[[issuer]]\nurl = \"https://a.example\"\naudience = [\"leasefs\"]\n"
	for _, c := range []struct {
		flags given
		says  string // empty: good
	}{
		{given{}, ""},
		{given{"oidc-issuer": "https://a.example", "oidc-audience": "a,b"}, ""},
		{given{"oidc-config": file(one + "[[issuer]]\nurl = \"https://b.example\"\naudience = [\"leasefs\"]\nuser-prefix = \"-\"\n")}, ""},
		{given{"oidc-audience": "a"}, "needs --oidc-issuer"},
		{given{"oidc-issuer": "https://a.example"}, "no audience"},
		{given{"oidc-issuer": "https://a.example", "oidc-audience": "a,,b"}, "no audience"},
		{given{"oidc-issuer": "https://a.example", "oidc-audience": "a", "oidc-ca": filepath.Join(dir, "none")}, "none"},
		{given{"oidc-issuer": "https://a.example", "oidc-config": "x"}, "together"},
		{given{"oidc-config": filepath.Join(dir, "none")}, "none"},
		{given{"oidc-config": file("")}, "no [[issuer]]"},
		{given{"oidc-config": file(one + "colour = 7\n")}, `line 4: "issuer.colour" is no setting`},
		{given{"oidc-config": file(one + "ca = 7\n")}, "line 4"},
		{given{"oidc-config": file("[[issuer]\n")}, "line 1"},
		{given{"oidc-config": file(one + strings.Replace(one, "a.ex", "b.ex", 1))}, "prefixes of users"},
	} {
		is, err := issuers("namenode", c.flags)
		if c.says == "" && (err != nil || is == nil != (len(c.flags) == 0)) || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v: %v, %v", c.flags, is, err)
		}
	}
}

// TestPrefixes: users and groups have one unless somebody says that they have none.
func TestPrefixes(t *testing.T) {
	list, err := parseIssuers([]byte("[[issuer]]\nuser-prefix = \"-\"\n[[issuer]]\nuser-prefix = \"x\"\n[[issuer]]\n"))
	if err != nil || len(list) != 3 {
		t.Fatalf("%v, %v", list, err)
	}
	for i, want := range []string{"", "x", "oidc/"} {
		if got := prefix(list[i].UserPrefix); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func FuzzIssuers(f *testing.F) {
	f.Add([]byte("[[issuer]]\nurl = \"https://a.example\"\naudience = [\"leasefs\"]\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseIssuers(raw)
		if (err == nil) != (len(list) > 0) {
			t.Errorf("%d issuers, %v", len(list), err)
		}
	})
}
