package kerberos

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jcmturner/gofork/encoding/asn1"
	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	iana "github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/kdc"
)

const realm, other = "LEASEFS.TEST", "OTHER.TEST"

// shifted is a clock that is wrong.
type shifted struct {
	clock.System
	by time.Duration
}

func (s shifted) Wall() time.Time { return s.System.Wall().Add(s.by) }

// running is a machine's clock since whose boot more or less time has passed than by its time of day.
type running struct {
	clock.System
	by *time.Duration
}

func (r running) Boot() time.Duration { return r.System.Boot() + *r.by }

// ask shows a ticket and returns whom it names.
func ask(t *testing.T, s *Shower, a *Acceptor) (user string, err error) {
	t.Helper()
	token, err := show(t, s)
	if err != nil {
		return "", err
	}
	p, _, err := a.Accept(token)
	if err != nil {
		return "", err
	}
	return a.User(p)
}

func show(t *testing.T, s *Shower) ([]byte, error) {
	t.Helper()
	header, err := s.Header(t.Context(), "NN1.example")
	if err != nil {
		return nil, err
	}
	token, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(header, "Negotiate "))
	if err != nil {
		t.Fatal(err)
	}
	return token, nil
}

// TestKerberos holds both sides against a real KDC.
func TestKerberos(t *testing.T) {
	k := kdc.Start(t, realm, other)
	dir := t.TempDir()
	file := func(name, content string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const server = "leasefs/nn1.example@" + realm
	serverKeys := k.Keytab(server, filepath.Join(dir, "nn1.keytab"))
	for _, user := range []string{"ann@" + realm, "root/host@" + realm, "yarn/node7@" + realm, "eve@" + realm, "root@" + other, "bob@" + other} {
		k.User(user, "secret")
	}
	k.Trust(other, realm)
	rules := file("rules", "# who\neve@"+realm+" -\nyarn/*@"+realm+" yarn\nbob@"+other+" robert\n")
	a, err := OpenAcceptor(clock.System{}, serverKeys, server, rules)
	if err != nil {
		t.Fatal(err)
	}
	open := func(cache string, cfg Config, by time.Duration) *Shower {
		t.Helper()
		k.Use(t, cache)
		s, err := Open(shifted{by: by}, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	of := func(principal string) *Shower {
		return open(k.Kinit(principal, "secret", time.Hour), Config{Server: "leasefs/_HOST@" + realm}, 0)
	}
	refused := func(what string, err error, says ...string) {
		t.Helper()
		for _, s := range says {
			if !errors.Is(err, fserror.Permission) || fserror.ReasonOf(err) != fserror.ReasonProof || !strings.Contains(err.Error(), s) {
				t.Errorf("%s: %v, should say %q", what, err, s)
			}
		}
	}

	ann := of("ann@" + realm)
	if ann.User() != "ann" {
		t.Errorf("ann is %q", ann.User())
	}
	for principal, want := range map[string]string{"ann@" + realm: "ann", "yarn/node7@" + realm: "yarn", "bob@" + other: "robert"} {
		if user, err := ask(t, of(principal), a); user != want || err != nil {
			t.Errorf("%s is %q, %v", principal, user, err)
		}
	}
	for principal, says := range map[string]string{"root/host@" + realm: "is no user here", "root@" + other: "others need a rule", "eve@" + realm: "by a rule"} {
		_, err := ask(t, of(principal), a)
		refused(principal, err, says)
	}

	// Each is good once, and nothing of it can be changed.
	token, err := show(t, ann)
	if err != nil {
		t.Fatal(err)
	}
	if _, until, err := a.Accept(token); err != nil || until.Before(time.Now().Add(30*time.Minute)) {
		t.Errorf("until %s, %v", until, err)
	}
	_, _, err = a.Accept(token)
	refused("a replay", err, "shown before")

	// Nor is it when the namenode's clock was set back: eleven minutes later it is the same time again.
	var later time.Duration
	back := &Acceptor{self: a.self, keytab: a.keytab, clock: running{by: &later}}
	if _, _, err := back.Accept(token); err != nil {
		t.Fatal(err)
	}
	next := &Shower{cfg: ann.cfg, clock: shifted{by: time.Minute}, files: ann.files}
	later = keepReplays + time.Second
	_, _, err = back.Accept(token)
	refused("a replay after the clock was set back", err, "set back")
	if user, err := ask(t, next, back); user != "ann" || err != nil {
		t.Errorf("what was made later: %q, %v", user, err)
	}
	for i := range token {
		bad := append([]byte(nil), token...)
		bad[i] ^= 0x55
		if p, _, err := a.Accept(bad); err == nil {
			t.Errorf("with byte %d changed it is %s's", i, p)
		}
		if _, _, err := a.Accept(token[:i]); err == nil {
			t.Errorf("%d of its bytes are enough", i)
		}
	}

	// The realm that counts is the one that the KDC has sealed.
	liar := of("root@" + other)
	if _, err := show(t, liar); err != nil { // now the library knows the host's realm
		t.Fatal(err)
	}
	m := liar.files.Get()
	ticket, key, err := m.client.GetServiceTicket("leasefs/nn1.example")
	if err != nil {
		t.Fatal(err)
	}
	m.self.Realm = realm
	if token, err = liar.wrap(m, ticket, key); err != nil {
		t.Fatal(err)
	}
	_, _, err = a.Accept(token)
	refused("who claims another realm", err, "its bearer says")

	// A realm whose keys are in the keytab, too, gives no tickets for the namenode.
	both, err := os.ReadFile(serverKeys)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(k.Keytab("leasefs/nn1.example@"+other, filepath.Join(dir, "other.keytab")))
	if err != nil {
		t.Fatal(err)
	}
	mixed, err := OpenAcceptor(clock.System{}, file("mixed.keytab", string(both)+string(theirs[2:])), server, rules) // after its version
	if err != nil {
		t.Fatal(err)
	}
	_, err = ask(t, open(k.Kinit("bob@"+other, "secret", time.Hour), Config{Server: "leasefs/_HOST@" + other}, 0), mixed)
	refused("a ticket of another realm", err, "is of realm")
	// Who is no user takes no room.
	if known := len(a.replays.order); known == 0 {
		t.Error("what was shown is not known")
	} else if _, err := ask(t, of("eve@"+realm), a); err == nil || len(a.replays.order) != known {
		t.Errorf("%d are known after one who is no user, %d before: %v", len(a.replays.order), known, err)
	}

	// Clocks.
	_, err = ask(t, open(k.Kinit("ann@"+realm, "secret", time.Hour), Config{}, 7*time.Minute+30*time.Second), a)
	refused("a clock that is fast", err, "7m", "ahead of")
	_, err = ask(t, open(k.Kinit("ann@"+realm, "secret", time.Hour), Config{}, -9*time.Minute), a)
	refused("a clock that is slow", err, "m", "behind", "set the clocks")
	if user, err := ask(t, open(k.Kinit("ann@"+realm, "secret", time.Hour), Config{}, 3*time.Minute), a); user != "ann" || err != nil {
		t.Errorf("a clock that is 3 minutes fast: %q, %v", user, err)
	}
	late := &Acceptor{self: a.self, keytab: a.keytab, clock: shifted{by: 2 * time.Hour}}
	_, err = ask(t, ann, late)
	refused("a ticket that has expired", err, "has expired", "kinit")

	// Keys of the client.
	keys := k.Keytab("robot@"+realm, filepath.Join(dir, "robot.keytab"))
	robot := open("", Config{Keytab: keys, Principal: "robot@" + realm}, 0)
	if user, err := ask(t, robot, a); user != "robot" || err != nil {
		t.Errorf("by a keytab: %q, %v", user, err)
	}
	old, err := os.ReadFile(keys)
	if err != nil {
		t.Fatal(err)
	}
	k.Keytab("robot@"+realm, keys)
	_, err = ask(t, open("", Config{Keytab: file("old.keytab", string(old)), Principal: "robot@" + realm}, 0), a)
	refused("an old keytab", err, "the keytab may be old")

	// Keys of the namenode: until it has the new ones, tickets by them are refused.
	k.Keytab(server, filepath.Join(dir, "next.keytab"))
	fresh := of("ann@" + realm)
	_, err = ask(t, fresh, a)
	refused("a key that the namenode has not", err, "key version 3", "keytab")
	if err := os.Rename(filepath.Join(dir, "next.keytab"), serverKeys); err != nil {
		t.Fatal(err)
	}
	if changed, err := a.Files()["keytab"].Check(); !changed || err != nil {
		t.Errorf("changed %t, %v", changed, err)
	}
	if user, err := ask(t, fresh, a); user != "ann" || err != nil {
		t.Errorf("with the new key: %q, %v", user, err)
	}
	_, err = OpenAcceptor(clock.System{}, k.Keytab("leasefs/weak.example@"+realm, filepath.Join(dir, "weak.keytab"), "arcfour-hmac:normal"), "leasefs/weak.example@"+realm, "")
	if !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), "no AES key") {
		t.Errorf("a weak key: %v", err)
	}
	_, err = OpenAcceptor(clock.System{}, file("junk", "\x05\x02\xff"), server, "")
	if !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), "no keytab") {
		t.Errorf("no keytab: %v", err)
	}

	// A cache of tickets that is replaced while a program runs, and one that is not there.
	cache := k.Kinit("ann@"+realm, "secret", time.Hour)
	lasting := open(cache, Config{}, 0)
	if err := os.Rename(k.Kinit("yarn/node7@"+realm, "secret", time.Hour), cache); err != nil {
		t.Fatal(err)
	}
	if err := lasting.Check(); err != nil {
		t.Error(err)
	}
	if user, err := ask(t, lasting, a); user != "yarn" || err != nil {
		t.Errorf("after kinit by another: %q, %v", user, err)
	}
	k.Use(t, filepath.Join(dir, "nowhere"))
	_, err = Open(clock.System{}, Config{})
	refused("no ticket", err, "kinit")
	t.Setenv("KRB5CCNAME", "KEYRING:persistent:0")
	if _, err = Open(clock.System{}, Config{}); !errors.Is(err, fserror.InvalidArgument) {
		t.Errorf("a keyring: %v", err)
	}

	// No KDC: a ticket that is there is enough; without one it says so.
	idle := of("ann@" + realm)
	k.Stop()
	if user, err := ask(t, fresh, a); user != "ann" || err != nil {
		t.Errorf("with a ticket, without a KDC: %q, %v", user, err)
	}
	if _, err := ask(t, idle, a); !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "KDC") {
		t.Errorf("without a KDC: %v", err)
	}
}

func TestRules(t *testing.T) {
	list, err := parseRules("rules", []byte("ann@A x\n*@B *\nnn/*@A nn\neve@B -\n*@C guest\n"))
	if err != nil {
		t.Fatal(err)
	}
	for principal, want := range map[string]string{
		"ann@A": "x", "bob@A": "bob", "bob@B": "bob", "eve@B": "eve" /* an earlier rule fits */, "nn/h@A": "nn", "nn/h/i@A": "nn", "nn@A": "nn", "bob/h@B": "", "a@C": "guest", "a@D": "", "root/h@A": "",
	} {
		p, err := ParsePrincipal(principal)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := userOf(list, "A", p); got != want || (err == nil) != (want != "") {
			t.Errorf("%s is %q, %v; want %q", principal, got, err, want)
		}
	}
	for _, bad := range []string{"ann", "ann@A", "ann@A x y", "a*@A x", "nn/*@A *", "ann@A *", "@A x", "a@ x", "a@b@c x", "/a@b x"} {
		if _, err := parseRules("rules", []byte(bad)); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// One principal cannot take the room of all, and what is too old is forgotten.
func TestReplays(t *testing.T) {
	var r replays
	made, now := time.Unix(1_700_000_000, 0), time.Hour
	sum := func(i int) [32]byte { return [32]byte{byte(i), byte(i >> 8), byte(i >> 16)} }
	for i := range maxOfOne {
		if err := r.add(Principal{"greedy", "A"}, sum(i), made, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.add(Principal{"greedy", "A"}, sum(maxOfOne), made, now); !errors.Is(err, fserror.Retry) {
		t.Errorf("one has all: %v", err)
	}
	if err := r.add(Principal{"ann", "A"}, sum(maxOfOne), made, now); err != nil {
		t.Errorf("another has none: %v", err)
	}
	if err := r.add(Principal{"ann", "A"}, sum(1), made, now+keepReplays); !errors.Is(err, fserror.Permission) {
		t.Errorf("a replay: %v", err)
	}
	now += keepReplays + time.Second
	if err := r.add(Principal{"greedy", "A"}, sum(1), made, now); !errors.Is(err, fserror.Permission) || len(r.seen) != 0 {
		t.Errorf("a replay of what is forgotten: %v, %d are kept", err, len(r.seen))
	}
	if err := r.add(Principal{"greedy", "A"}, sum(2), made.Add(time.Second), now); err != nil || len(r.seen) != 1 || len(r.of) != 1 || len(r.order) != 1 {
		t.Errorf("%v, %d are kept", err, len(r.seen))
	}
}

// FuzzAccept: nothing that anybody shows ends the namenode, or is taken.
func FuzzAccept(f *testing.F) {
	kt := keytab.New()
	if err := kt.AddEntry("leasefs/nn1.example", realm, "secret", time.Unix(1, 0), 1, strong[0]); err != nil {
		f.Fatal(err)
	}
	raw, err := kt.Marshal()
	file := filepath.Join(f.TempDir(), "keytab")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		f.Fatal(err)
	}
	a, err := OpenAcceptor(clock.System{}, file, "leasefs/nn1.example@"+realm, "")
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte("\x60\x06\x06\x04+\x06\x01\x05"))
	f.Fuzz(func(t *testing.T, token []byte) {
		if p, _, err := a.Accept(token); err == nil {
			t.Errorf("it is %s's", p)
		}
	})
}

// protect is the reverse of Context.Unwrap: a message of a client, its body rotated by so many bytes.
func protect(t testing.TB, key types.EncryptionKey, text string, seal bool, turn int) []byte {
	t.Helper()
	var flags byte
	if seal {
		flags = isSealed
	}
	h, body := head(flags, 0, 0), []byte(text)
	if seal {
		e, err := crypto.GetEncryptedData(slices.Concat(body, h), key, keyusage.GSSAPI_INITIATOR_SEAL, 0)
		if err != nil {
			t.Fatal(err)
		}
		body = e.Cipher
	} else {
		kind, err := crypto.GetEtype(key.KeyType)
		if err != nil {
			t.Fatal(err)
		}
		sum, err := kind.GetChecksumHash(key.KeyValue, slices.Concat(body, h), keyusage.GSSAPI_INITIATOR_SEAL)
		if err != nil {
			t.Fatal(err)
		}
		body = append(body, sum...)
		binary.BigEndian.PutUint16(h[4:], uint16(len(sum))) //nolint:gosec // some bytes
	}
	binary.BigEndian.PutUint16(h[6:], uint16(turn)) //nolint:gosec // some bytes
	return slices.Concat(h, body[len(body)-turn:], body[:len(body)-turn])
}

// FuzzContext: nothing that a client of a gateway sends while it proves who it is ends the gateway.
// Whoever is taken for somebody has his ticket, and what is taken for his message he has sent.
func FuzzContext(f *testing.F) {
	const server, text = "leasefs/nn1.example", "what the client says"
	kt := keytab.New()
	if err := kt.AddEntry(server, realm, "secret", time.Unix(1, 0), 1, strong[0]); err != nil {
		f.Fatal(err)
	}
	raw, err := kt.Marshal()
	file := filepath.Join(f.TempDir(), "keytab")
	if err == nil {
		err = os.WriteFile(file, raw, 0o600)
	}
	if err != nil {
		f.Fatal(err)
	}
	open, err := OpenAcceptor(clock.System{}, file, server+"@"+realm, "")
	if err != nil {
		f.Fatal(err)
	}
	now := time.Now().UTC()
	ticket, session, err := messages.NewTicket(types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, "ann"), realm, open.name(), realm,
		types.NewKrbFlags(), kt, strong[0], 1, now, now, now.Add(time.Hour), now.Add(time.Hour))
	if err != nil {
		f.Fatal(err)
	}
	shown, err := spnego.NewKRB5TokenAPREQ(krb.NewWithPassword("ann", realm, "", config.New()), ticket, session,
		[]int{gssapi.ContextFlagMutual, gssapi.ContextFlagReplay, gssapi.ContextFlagSequence, gssapi.ContextFlagConf}, []int{iana.APOptionMutualRequired})
	if err != nil {
		f.Fatal(err)
	}
	alone, err := shown.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	negotiated, err := (&spnego.SPNEGOToken{Init: true, NegTokenInit: spnego.NegTokenInit{MechTypes: []asn1.ObjectIdentifier{gssapi.OIDKRB5.OID()}, MechTokenBytes: alone}}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	key := types.EncryptionKey{KeyType: strong[0], KeyValue: []byte("0123456789abcdef0123456789abcdef")}
	for n, token := range [][]byte{alone, negotiated} {
		accept := &Acceptor{self: open.self, clock: open.clock, keytab: open.keytab}
		if c, err := accept.AcceptContext(token); err != nil || c.Principal != (Principal{"ann", realm}) || len(c.Reply) == 0 || !c.Numbered {
			f.Fatalf("token %d: %+v, %v", n, c, err)
		}
		for _, seal := range []bool{false, true} {
			message := protect(f, key, text, seal, 5*n)
			if got, sealed, err := (&Context{key: key, Numbered: true}).Unwrap(message); string(got) != text || sealed != seal || err != nil {
				f.Fatalf("a message: %q, %t, %v", got, sealed, err)
			}
			f.Add(token, message)
		}
	}
	f.Fuzz(func(t *testing.T, token, message []byte) {
		accept := &Acceptor{self: open.self, clock: open.clock, keytab: open.keytab} // each is good once
		if c, err := accept.AcceptContext(token); err == nil {
			if c.Principal != (Principal{"ann", realm}) {
				t.Errorf("it is %s's", c.Principal)
			}
			if _, err := c.Wrap([]byte(text), true); err != nil {
				t.Errorf("nothing can be said to the client: %v", err)
			}
		}
		if got, _, err := (&Context{key: key, Numbered: true}).Unwrap(message); err == nil && string(got) != text {
			t.Errorf("%q is taken for what the client says", got)
		}
	})
}

// TestNewTicketsWhileProving: while tickets are shown, the cache is replaced by a new one, again and
// again: each proof names who shows it.
func TestNewTicketsWhileProving(t *testing.T) {
	k := kdc.Start(t, realm)
	dir := t.TempDir()
	const server = "leasefs/nn1.example@" + realm
	keys := k.Keytab(server, filepath.Join(dir, "nn1.keytab"))
	k.User("ann@"+realm, "secret")
	a, err := OpenAcceptor(clock.System{}, keys, server, "")
	if err != nil {
		t.Fatal(err)
	}
	var caches [][]byte
	for range 2 {
		content, err := os.ReadFile(k.Kinit("ann@"+realm, "secret", time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		caches = append(caches, content)
	}
	cache := filepath.Join(dir, "cache")
	replace := func(content []byte) {
		t.Helper()
		err := os.WriteFile(cache+".new", content, 0o600)
		if err == nil {
			err = os.Rename(cache+".new", cache)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	replace(caches[0])
	k.Use(t, cache)
	s, err := Open(clock.System{}, Config{Server: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	stop := make(chan struct{})
	var provers sync.WaitGroup
	for range 4 {
		provers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				header, err := s.Header(t.Context(), "nn1.example")
				if err != nil {
					t.Errorf("nothing is shown: %v", err)
					return
				}
				token, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(header, "Negotiate "))
				if err != nil {
					t.Error(err)
					return
				}
				if p, _, err := a.Accept(token); err != nil || p.Name != "ann" {
					t.Errorf("it names %v: %v", p, err)
					return
				}
			}
		})
	}
	for i := range 100 {
		replace(caches[(i+1)%2])
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	provers.Wait()
}
