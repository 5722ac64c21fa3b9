package proof

import (
	"errors"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

func TestProxies(t *testing.T) {
	name := filepath.Join(t.TempDir(), "proxies")
	write(t, name, `# who may act for whom

gw users=ann,eve from=10.1.2.3
gw groups=staff from=10.0.0.0/8,2001:db8::/32 trust-groups
all users=* from=*
groups groups=* from=127.0.0.1,::1
root-too users=root groups=wheel from=*
wheels groups=wheel from=*
`)
	f, err := OpenProxies(clock.System{}, name)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		proxy, from, user, groups string
		may, trust                bool
	}{
		{"gw", "10.1.2.3", "ann", "", true, false},
		{"gw", "::ffff:10.1.2.3", "ann", "", true, false},
		{"gw", "10.1.2.3", "ann", "staff", true, true},
		{"gw", "10.1.2.4", "ann", "", false, false},
		{"gw", "10.1.2.4", "ann", "users staff", true, true},
		{"gw", "11.1.2.4", "ann", "staff", false, false},
		{"gw", "2001:db8::7", "bob", "staff", true, true},
		{"gw", "fe80::1%eth0", "bob", "staff", false, false},
		{"gw", "", "bob", "staff", false, false},
		{"gw", "10.1.2.3", "bob", "", false, false},
		{"gw", "10.1.2.3", "", "", false, false},
		{"gw", "10.1.2.3", "bob", "staff wheel", false, false},
		{"gw", "10.1.2.3", "ann", "wheel", true, false}, // she is named
		{"all", "1.2.3.4", "bob", "", true, false},
		{"all", "", "bob", "", true, false},
		{"all", "1.2.3.4", "", "", false, false},
		{"all", "1.2.3.4", "root", "", false, false},
		{"all", "1.2.3.4", "bob", "wheel", false, false},
		{"groups", "127.0.0.1", "bob", "", false, false},
		{"groups", "127.0.0.1", "bob", "users", true, false},
		{"groups", "::1", "bob", "wheel", false, false},
		{"root-too", "1.2.3.4", "root", "", true, false},
		{"root-too", "1.2.3.4", "bob", "wheel", true, false},
		{"wheels", "1.2.3.4", "root", "", false, false},
		{"wheels", "1.2.3.4", "root", "wheel", true, false},
		{"wheels", "1.2.3.4", "bob", "", false, false},
		{"nobody-here", "10.1.2.3", "ann", "", false, false},
	} {
		s := &Standing{Proxy: c.proxy, User: c.user, Groups: strings.Fields(c.groups), Superuser: "root", Supergroup: "wheel"}
		if c.from != "" {
			s.From = netip.MustParseAddr(c.from)
		}
		trust, err := f.Get().May(s)
		if (err == nil) != c.may || trust != c.trust {
			t.Errorf("%+v: %t, %v", c, trust, err)
		}
		if err != nil && (!errors.Is(err, fserror.Permission) || fserror.ReasonOf(err) != fserror.ReasonProxy || !strings.Contains(err.Error(), "the rule would be: "+c.proxy)) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := (*Proxies)(nil).May(&Standing{Proxy: "all", User: "bob"}); !errors.Is(err, fserror.Permission) {
		t.Errorf("no rules: %v", err)
	}
	// What the error proposes is a rule that lets him.
	s := &Standing{Proxy: "new", User: "root", From: netip.MustParseAddr("1.2.3.4"), Superuser: "root"}
	_, err = f.Get().May(s)
	_, line, _ := strings.Cut(err.Error(), "the rule would be: ")
	write(t, name, line)
	if changed, err := f.Check(); !changed || err != nil {
		t.Fatalf("%t, %v", changed, err)
	}
	if _, err := f.Get().May(s); err != nil {
		t.Error(err)
	}
}

func TestBadProxies(t *testing.T) {
	name := filepath.Join(t.TempDir(), "proxies")
	for line, why := range map[string]string{
		"gw":                                   "for no user and no group",
		"gw from=*":                            "for no user and no group",
		"gw users=ann":                         "from where",
		"gw users=ann from=":                   "empty name",
		"gw users=ann,,bob from=*":             "empty name",
		"gw users=ann from=gw.example":         "no address",
		"gw users=ann from=10.0.0.0/33":        "no address",
		"gw users=ann from=fe80::1%eth0":       "no address",
		"gw users=ann users=bob from=*":        "twice",
		"gw users=ann from=* trust-groups=yes": "the word",
		"gw users=ann from=* groups":           "the word",
		"gw user=ann from=*":                   "the word",
		"users=ann from=*":                     "begins with",
		"* users=ann from=*":                   "begins with",
	} {
		write(t, name, "# a rule\n"+line+"\n")
		_, err := OpenProxies(clock.System{}, name)
		if !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), name) {
			t.Errorf("%q: %v, want %q", line, err, why)
		}
	}
	write(t, name, "gw users="+strings.Repeat("a,", 100_000)+"a from=*")
	if _, err := OpenProxies(clock.System{}, name); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), name) {
		t.Errorf("a line that is too long: %v", err)
	}
}
