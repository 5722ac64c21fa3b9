package kerberos

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jcmturner/gokrb5/v8/iana/errorcode"
	"github.com/jcmturner/gokrb5/v8/iana/etypeID"
	"github.com/jcmturner/gokrb5/v8/iana/nametype"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
)

// MaxSkew is how much a client's clock may differ from the namenode's.
const MaxSkew = 5 * time.Minute

// strong are the kinds of keys that are taken.
var strong = []int32{etypeID.AES256_CTS_HMAC_SHA1_96, etypeID.AES128_CTS_HMAC_SHA1_96, etypeID.AES256_CTS_HMAC_SHA384_192, etypeID.AES128_CTS_HMAC_SHA256_128}

// Acceptor finds out whose tickets are. It is safe for concurrent use.
type Acceptor struct {
	self    Principal
	clock   clock.Clock
	keytab  *proof.File[*keytab.Keytab]
	rules   *proof.File[[]rule] // nil: none
	replays replays
}

// OpenAcceptor reads the keytab with the keys of the principal NAME/HOST@REALM, whose realm
// is that of users without a rule; and if rules is not empty, a file of these.
func OpenAcceptor(c clock.Clock, keytabFile, principal, rules string) (*Acceptor, error) {
	self, err := ParsePrincipal(principal)
	if err != nil {
		return nil, err
	}
	a := &Acceptor{self: self, clock: c}
	a.keytab, err = proof.Open(c, func(contents [][]byte) (*keytab.Keytab, error) {
		kt, err := readKeytab(keytabFile, contents[0])
		if err != nil {
			return nil, err
		}
		for _, etype := range strong {
			if _, _, err := kt.GetEncryptionKey(a.name(), self.Realm, 0, etype); err == nil {
				return kt, nil
			}
		}
		return nil, fserror.New(fserror.InvalidArgument, "read keytab", keytabFile, "it has no AES key of %s", self)
	}, keytabFile)
	if err == nil && rules != "" {
		a.rules, err = proof.Open(c, func(contents [][]byte) ([]rule, error) { return parseRules(rules, contents[0]) }, rules)
	}
	return a, err
}

func readKeytab(file string, content []byte) (kt *keytab.Keytab, err error) {
	kt = keytab.New()
	if err := guarded(func() error { return kt.Unmarshal(content) }); err != nil {
		return nil, fserror.New(fserror.InvalidArgument, "read keytab", file, "it is no keytab: %v", err)
	}
	return kt, nil
}

func (a *Acceptor) name() types.PrincipalName {
	return types.NewPrincipalName(nametype.KRB_NT_SRV_HST, a.self.Name)
}

// Files are those that may change, by what they are.
func (a *Acceptor) Files() map[string]interface{ Check() (bool, error) } {
	files := map[string]interface{ Check() (bool, error) }{"keytab": a.keytab}
	if a.rules != nil {
		files["rules of Kerberos"] = a.rules
	}
	return files
}

// User is whom a principal is now. Permission: nobody.
func (a *Acceptor) User(p Principal) (string, error) {
	var list []rule
	if a.rules != nil {
		list = a.rules.Get()
	}
	return userOf(list, a.self.Realm, p)
}

// Accept returns whose ticket was shown, in a token of SPNEGO, and when the ticket expires.
// Errors: Permission says what is wrong with it; Retry, that too many were shown lately.
func (a *Acceptor) Accept(token []byte) (p Principal, until time.Time, err error) {
	var req messages.APReq
	if err := guarded(func() error { return unwrap(token, &req) }); err != nil {
		return p, until, refuse("what was shown is no Kerberos ticket in SPNEGO: %v", err)
	}
	return a.accept(&req)
}

func (a *Acceptor) accept(req *messages.APReq) (p Principal, until time.Time, err error) {
	if kind := req.Ticket.EncPart.EType; !slices.Contains(strong, kind) {
		return p, until, refuse("the Kerberos ticket is encrypted by a key of kind %d, and only AES keys are taken: make some for %s", kind, a.self)
	}
	if req.Ticket.Realm != a.self.Realm { // a keytab may have keys that other realms know
		return p, until, refuse("the Kerberos ticket is of realm %q, and this namenode's is %s", req.Ticket.Realm, a.self.Realm)
	}
	name := a.name()
	err = guarded(func() error {
		_, err := req.Verify(a.keytab.Get(), MaxSkew, types.HostAddress{}, &name)
		return err
	})
	now := a.clock.Wall()
	sealed := &req.Ticket.DecryptedEncPart
	if err != nil {
		return p, until, a.explain(req, err, now)
	}
	// What is in the ticket was sealed by the KDC. The library does not compare the realm
	// that the client says with that.
	p = Principal{sealed.CName.PrincipalNameString(), sealed.CRealm}
	switch {
	case req.Authenticator.CRealm != sealed.CRealm:
		return p, until, refuse("the Kerberos ticket is of realm %s, and its bearer says %q", sealed.CRealm, req.Authenticator.CRealm)
	case !now.Before(sealed.EndTime):
		return p, until, expired(p, sealed.EndTime)
	}
	if _, err := a.User(p); err != nil { // else everybody who has tickets could fill the room for what was shown
		return p, until, err
	}
	return p, sealed.EndTime, a.replays.add(p, sha256.Sum256(req.EncryptedAuthenticator.Cipher), req.Authenticator.CTime, a.clock.Boot())
}

func unwrap(token []byte, req *messages.APReq) error {
	var s spnego.SPNEGOToken
	if err := s.Unmarshal(token); err != nil {
		return err
	}
	if !s.Init {
		return errors.New("it answers a question that was not asked")
	}
	var k spnego.KRB5Token
	if err := k.Unmarshal(s.NegTokenInit.MechTokenBytes); err != nil {
		return err
	}
	if !k.IsAPReq() || len(k.APReq.Ticket.SName.NameString) == 0 {
		return errors.New("it has no AP-REQ")
	}
	*req = k.APReq
	return nil
}

func expired(p Principal, at time.Time) error {
	return refuse("the Kerberos ticket of %s has expired at %s: get another one (kinit)", p, at.UTC().Format(time.RFC3339))
}

// explain says in our words why a ticket was refused.
func (a *Acceptor) explain(req *messages.APReq, err error, now time.Time) error {
	var e messages.KRBError
	sealed := &req.Ticket.DecryptedEncPart
	if errors.As(err, &e) {
		p := Principal{sealed.CName.PrincipalNameString(), sealed.CRealm}
		switch e.ErrorCode {
		case errorcode.KRB_AP_ERR_TKT_EXPIRED:
			return expired(p, sealed.EndTime)
		case errorcode.KRB_AP_ERR_TKT_NYV:
			return refuse("the Kerberos ticket of %s is not good before %s, and it is %s by this namenode's clock: set the clocks", p, sealed.StartTime.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
		case errorcode.KRB_AP_ERR_SKEW:
			ahead, by := "ahead of", req.Authenticator.CTime.Sub(now).Round(time.Second)
			if by < 0 {
				ahead, by = "behind", -by
			}
			return refuse("the clock of the client is %s %s this namenode's, and Kerberos allows %s: set the clocks", by, ahead, MaxSkew)
		case errorcode.KRB_AP_ERR_BADADDR:
			return refuse("the Kerberos ticket of %s is for certain addresses, which are not looked at: get one without addresses (kinit -A)", p)
		}
	}
	return refuse("the Kerberos ticket (for %s, key version %d) does not fit the keytab of %s: the client asks for another name, or one of both has an old key (%v)",
		Principal{req.Ticket.SName.PrincipalNameString(), req.Ticket.Realm}, req.Ticket.EncPart.KVNO, a.self, err)
}

// guarded turns a panic into an error: what the library is given comes from anybody.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be read: %v", p)
		}
	}()
	return f()
}
