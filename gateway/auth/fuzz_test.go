package auth

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	krb "github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	gss "github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	iana "github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/kerberos"
)

// ticketed are tokens of ann, who has a ticket for a server: that which shows it, and one that chooses a
// protection, as somebody else if that is not empty.
func ticketed(f *testing.F, kt *keytab.Keytab, server, realm string, choice byte, as string) (shown, chosen []byte) {
	f.Helper()
	must := func(err error) {
		f.Helper()
		if err != nil {
			f.Fatal(err)
		}
	}
	now := time.Now().UTC()
	ticket, session, err := messages.NewTicket(types.NewPrincipalName(nametype.KRB_NT_PRINCIPAL, "ann"), realm, types.NewPrincipalName(nametype.KRB_NT_SRV_HST, server), realm,
		types.NewKrbFlags(), kt, etypeID.AES256_CTS_HMAC_SHA1_96, 1, now, now, now.Add(time.Hour), now.Add(time.Hour))
	must(err)
	flags, options := []int{gss.ContextFlagInteg}, []int(nil)
	if choice != noLayer {
		flags, options = append(flags, gss.ContextFlagMutual, gss.ContextFlagReplay, gss.ContextFlagSequence), []int{iana.APOptionMutualRequired}
	}
	req, err := spnego.NewKRB5TokenAPREQ(krb.NewWithPassword("ann", realm, "", config.New()), ticket, session, flags, options)
	must(err)
	shown, err = req.Marshal()
	must(err)
	must(req.APReq.DecryptAuthenticator(session))
	w := &gss.WrapToken{EC: 12, SndSeqNum: uint64(req.APReq.Authenticator.SeqNumber) & (1<<32 - 1), Payload: append([]byte{choice, 0, 0, 0}, as...)} //nolint:gosec // 32 bits of it
	must(w.SetCheckSum(session, keyusage.GSSAPI_INITIATOR_SEAL))
	chosen, err = w.Marshal()
	must(err)
	return shown, chosen
}

// FuzzKerberos: whatever a client of hdfs:// sends to prove who it is, the gateway keeps serving, and whom it takes
// for somebody has his ticket and a protection that was offered.
func FuzzKerberos(f *testing.F) {
	const realm, server = "AUTH.TEST", "nn/h"
	kt := keytab.New()
	if err := kt.AddEntry(server, realm, "secret", time.Unix(1, 0), 1, etypeID.AES256_CTS_HMAC_SHA1_96); err != nil {
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
	prove := func(t testing.TB, layers byte, tokens ...[]byte) (*gssapi, bool, error) {
		t.Helper()
		calls, err := kerberos.OpenAcceptor(clock.System{}, file, server+"@"+realm, "") // each ticket is shown to it once
		if err != nil {
			t.Fatal(err)
		}
		s := &gssapi{guard: &Guard{calls: calls, layers: layers}}
		for _, token := range tokens {
			if _, done, err := s.Next(token); done || err != nil {
				return s, done, err
			}
		}
		return s, false, nil
	}
	const ann = "ann@" + realm
	for _, c := range []struct {
		layers, choice byte
		as             string
		taken          bool
	}{
		{noLayer | integrity | privacy, noLayer, "", true},
		{noLayer | integrity | privacy, privacy, ann, true},
		{integrity | privacy, integrity, "", true},
		{integrity | privacy, noLayer, "", false},
		{privacy, integrity, "", false},
		{privacy, privacy, "root", false},
	} {
		shown, chosen := ticketed(f, kt, server, realm, c.choice, c.as)
		tokens := [][]byte{shown, nil, chosen}
		if c.choice == noLayer { // it wants no proof of the server
			tokens = [][]byte{shown, chosen, nil}
		}
		if s, done, err := prove(f, c.layers, tokens...); done != c.taken || done && s.layer != c.choice || (err == nil) != c.taken {
			f.Fatalf("%+v: %t, %d, %v", c, done, s.layer, err)
		}
		f.Add(c.layers, tokens[0], tokens[1], tokens[2])
	}
	f.Fuzz(func(t *testing.T, layers byte, first, second, third []byte) {
		layers &= noLayer | integrity | privacy
		s, done, err := prove(t, layers, first, second, third)
		if !done {
			return
		}
		if err != nil || s.context.Principal.String() != ann || s.layer&layers == 0 || s.layer != noLayer && !s.context.Numbered {
			t.Errorf("offered %d, it is %s with %d: %v", layers, s.context.Principal, s.layer, err)
		}
		if user, by, err := s.User(""); user != "ann" || by != "ann" || err != nil {
			t.Errorf("it is %q by %q: %v", user, by, err)
		}
		if s.Protects() {
			if _, err := s.Wrap([]byte("an answer")); err != nil {
				t.Errorf("nothing can be said to it: %v", err)
			}
			_, _ = s.Unwrap(third) // it comes once more
		}
	})
}
