package auth

import (
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/kerberos"
	"github.com/leasefs/leasefs/test/env/kdc"
)

func testGuard(key string, c clock.Clock) *Guard {
	return &Guard{key: mac([]byte(key), "delegation tokens and sessions of a gateway"), life: time.Hour, clock: c, layers: noLayer | integrity | privacy}
}

// late is a clock that is ahead.
type late struct {
	clock.System
	by time.Duration
}

func (l late) Wall() time.Time { return l.System.Wall().Add(l.by) }

// TestTokens: a token is taken by each gateway with the same key until it ends, and by no
// other, and nothing of it can be changed.
func TestTokens(t *testing.T) {
	g := testGuard("one", clock.System{})
	s, err := g.Issue("ann", "hue", "yarn")
	if err != nil {
		t.Fatal(err)
	}
	text := s.EncodeURL(KindWebHDFS)
	got, err := testGuard("one", clock.System{}).FromURL(text)
	if err != nil || got.Owner != "ann" || got.Real != "hue" || got.Renewer != "yarn" || !got.Ends.Equal(s.Ends) {
		t.Fatalf("%+v, %v", got, err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if hadoop.ClassOf(err) != hadoop.InvalidToken {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = testGuard("two", clock.System{}).FromURL(text)
	refused("by another gateway", err)
	_, err = testGuard("one", late{by: 2 * time.Hour}).FromURL(text)
	refused("after its end", err)
	_, err = g.verify("session", s.Identifier, s.Password)
	refused("as a cookie", err)
	for n := range s.Identifier {
		changed := append([]byte(nil), s.Identifier...)
		changed[n] ^= 1
		_, err = g.verify("delegation", changed, s.Password)
		refused("with another byte", err)
	}
	for n := range text {
		if _, err := g.FromURL(text[:n]); err == nil && n < len(text)*3/4 {
			t.Errorf("cut to %d of %d characters it is taken", n, len(text))
		}
	}
	if _, err := g.Issue("ann", "", strings.Repeat("x", 300)); hadoop.ClassOf(err) != hadoop.IllegalArgument {
		t.Errorf("a long name: %v", err)
	}
}

// TestSentOn: a token with which a client is sent on is good for that request, for no longer than an
// hour or than other tokens are, and for no other.
func TestSentOn(t *testing.T) {
	g := testGuard("one", clock.System{})
	g.life = 2 * time.Hour
	at := Sent{Op: "OPEN", Path: "/f", Inode: "7"}
	s := g.Send("ann", "hue", at)
	text := s.EncodeURL(KindWebHDFS)
	if got, err := g.FromURLAt(text, at); err != nil || got.Owner != "ann" || got.Real != "hue" || got.Ends.Sub(got.Issued) != time.Hour {
		t.Errorf("%+v, %v", got, err)
	}
	for _, other := range []Sent{{"OPEN", "/g", "7", ""}, {"OPEN", "/f/", "7", ""}, {"OPEN", "/f", "8", ""}, {"OPEN", "/f", "", ""}, {"OPEN", "/f", "", "7"}, {"DELETE", "/f", "7", ""}, {}} {
		if _, err := g.FromURLAt(text, other); hadoop.ClassOf(err) != hadoop.InvalidToken {
			t.Errorf("it is taken for %+v: %v", other, err)
		}
	}
	if _, err := g.FromURL(text); hadoop.ClassOf(err) != hadoop.InvalidToken {
		t.Errorf("it is taken without a path: %v", err)
	}
	if _, err := g.Renew(s.Identifier, s.Password); hadoop.ClassOf(err) != hadoop.InvalidToken {
		t.Errorf("it is taken for a delegation token: %v", err)
	}
	g.life = time.Minute
	if s = g.Send("ann", "", at); time.Until(s.Ends) > time.Minute {
		t.Errorf("it is good until %s", s.Ends)
	}
	d, err := g.Issue("ann", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.FromURLAt(d.EncodeURL(KindWebHDFS), at); err != nil {
		t.Errorf("a delegation token: %v", err)
	}
}

// TestTokensAndClocks: a token and a cookie are by the clock of the gateway that is shown them, and one that was
// given far in its future, by a clock that was or is wrong, is none.
func TestTokensAndClocks(t *testing.T) {
	for ahead, good := range map[time.Duration]bool{
		-24 * time.Hour: false, -tolerance - time.Minute: false, -tolerance + time.Minute: true, 0: true, 59 * time.Minute: true, time.Hour: false, 24 * time.Hour: false,
	} {
		g := testGuard("one", clock.System{})
		s, err := g.Issue("ann", "", "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = testGuard("one", late{by: ahead}).FromURL(s.EncodeURL(KindWebHDFS))
		if good != (err == nil) || err != nil && hadoop.ClassOf(err) != hadoop.InvalidToken {
			t.Errorf("a clock that is %s ahead: %v", ahead, err)
		}
		c := g.sign("session", Token{Owner: "ann", Issued: s.Ends.Add(-g.life), Ends: s.Ends})
		if _, err := testGuard("one", late{by: ahead}).verify("session", c.Identifier, c.Password); good != (err == nil) {
			t.Errorf("a cookie, by a clock that is %s ahead: %v", ahead, err)
		}
	}
}

// TestNumbers: numbers are written as Hadoop's WritableUtils writes them.
func TestNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "00", 127: "7f", -112: "90", 128: "8f80", 255: "8fff", 256: "8e0100", -113: "8770", 1 << 40: "8a010000000000", 1<<63 - 1: "887fffffffffffffff", -1 << 63: "807fffffffffffffff"} {
		b := putLong(nil, n)
		if got := hex.EncodeToString(b); got != want {
			t.Errorf("%d is %s, want %s", n, got, want)
		}
		if got, rest, ok := takeLong(b); got != n || len(rest) != 0 || !ok {
			t.Errorf("%d comes back as %d", n, got)
		}
		if _, _, ok := takeLong(b[:len(b)-1]); ok {
			t.Errorf("%d without its last byte is taken", n)
		}
	}
}

// TestFields: what a client sends in DIGEST-MD5 is read as it is meant, or not at all.
func TestFields(t *testing.T) {
	f, ok := fields(`username="a\"b,c",realm="default" , nc=00000001,qop=auth`)
	if !ok || f["username"] != `a"b,c` || f["realm"] != "default" || f["nc"] != "00000001" || f["qop"] != "auth" {
		t.Errorf("%v, %t", f, ok)
	}
	for _, bad := range []string{"username", `username="a`, `username="a\`, `nonce="a",nonce="b"`} {
		if f, ok := fields(bad); ok {
			t.Errorf("%q is %v", bad, f)
		}
	}
	g := testGuard("one", clock.System{})
	for _, m := range g.Mechanisms() {
		if m.Method != ByToken {
			continue
		}
		p, challenge := m.Begin()
		if !strings.Contains(string(challenge), "nonce=") {
			t.Errorf("the challenge is %q", challenge)
		}
		if _, done, err := p.Next([]byte(`username="AA==",realm="default",nonce="x",nc=00000001,cnonce="y",digest-uri="/default",response=0`)); done || hadoop.ClassOf(err) != hadoop.AccessControl {
			t.Errorf("a made-up response: %t, %v", done, err)
		}
	}
	if g.layers = privacy; len(g.Mechanisms()) != 1 {
		t.Error("tokens are offered although nothing would protect what follows")
	}
}

func FuzzTokens(f *testing.F) {
	g := testGuard("one", clock.System{})
	s, _ := g.Issue("ann", "hue", "yarn") //nolint:errcheck // short names
	f.Add(s.Identifier, s.EncodeURL(KindHDFS), `username="a",realm=b`)
	f.Fuzz(func(t *testing.T, identifier []byte, url, response string) {
		if got, err := g.read(identifier); err == nil && len(got.Owner) > maxName {
			t.Errorf("%d bytes of a name", len(got.Owner))
		}
		_, _ = g.FromURL(url)
		_, _ = fields(response)
	})
}

// TestBadConfig: what makes no sense is refused at the start, and says what to do.
func TestBadConfig(t *testing.T) {
	keytab := filepath.Join(t.TempDir(), "keytab")
	if err := os.WriteFile(keytab, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	for says, cfg := range map[string]Config{
		"no Kerberos principal": {Principal: "nn"},
		"has no host":           {Principal: "nn@R"},
		"no keytab":             {Principal: "nn/h@R", Keytab: keytab, Calls: true},
		"choose authentication": {Principal: "nn/h@R", Protection: "some"},
		"cannot be good for":    {Principal: "nn/h@R", Life: time.Second},
	} {
		if _, err := New(clock.System{}, cfg); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, should say %q", cfg, err, says)
		}
	}
}

// TestUsers: a principal is the user that the rules say, and what a connection says is whom it
// acts for.
func TestUsers(t *testing.T) {
	const realm = "AUTH.TEST"
	k, dir := kdc.Start(t, realm), t.TempDir()
	rules := filepath.Join(dir, "rules")
	if err := os.WriteFile(rules, []byte("hue/*@"+realm+" hue\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := New(clock.System{}, Config{Keytab: k.Keytab("nn/h@"+realm, filepath.Join(dir, "keytab")), Principal: "nn/h@" + realm, Rules: rules, Calls: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, says, user, by string }{
		{"ann", "", "ann", "ann"},
		{"ann", "ann@" + realm, "ann", "ann"},
		{"hue/h", "hue/h@" + realm, "hue", "hue"},
		{"hue/h", "bob", "bob", "hue"},
		{"ann", "root", "root", "ann"}, // which the proxies then forbid
		{"yarn/h", "", "", ""},
	} {
		s := &gssapi{guard: g, context: &kerberos.Context{Principal: kerberos.Principal{Name: c.name, Realm: realm}}}
		user, by, err := s.User(c.says)
		if user != c.user || by != c.by || (err == nil) != (c.user != "") {
			t.Errorf("%s, who says %q, is %q by %q, %v", c.name, c.says, user, by, err)
		}
	}
	d := &digest{guard: g, token: Token{Owner: "ann", Real: "hue"}}
	if user, by, err := d.User(""); user != "ann" || by != "hue" || err != nil {
		t.Errorf("a token of ann by hue is %q by %q, %v", user, by, err)
	}
	if _, _, err := d.User("root"); err == nil {
		t.Error("who has ann's token is root because he says so")
	}
}
