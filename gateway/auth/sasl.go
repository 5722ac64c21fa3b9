package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/md5" //nolint:gosec // DIGEST-MD5 is what Hadoop's clients know
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"

	"github.com/leasefs/leasefs/gateway/hdfs/ipc"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/kerberos"
)

// Ways to protect what follows a proof, as bits of SASL's.
const (
	noLayer   = 1
	integrity = 2
	privacy   = 4
)

// Methods of Mechanisms, as Hadoop calls them.
const (
	ByToken    = "TOKEN"
	ByKerberos = "KERBEROS"
)

// Mechanisms are the ways to prove for clients of hdfs://.
func (g *Guard) Mechanisms() []ipc.Mechanism {
	gss := ipc.Mechanism{Method: ByKerberos, Name: "GSSAPI", Protocol: g.name, Server: g.host, Begin: func() (ipc.Proof, []byte) { return &gssapi{guard: g}, nil }}
	if g.layers&noLayer == 0 { // what DIGEST-MD5 protects with is too weak to be called that
		return []ipc.Mechanism{gss}
	}
	return []ipc.Mechanism{{Method: ByToken, Name: "DIGEST-MD5", Server: "default", Begin: func() (ipc.Proof, []byte) {
		d := &digest{guard: g, nonce: base64.StdEncoding.EncodeToString(random(24))}
		return d, []byte(`realm="default",nonce="` + d.nonce + `",qop="auth",charset=utf-8,algorithm=md5-sess`)
	}}, gss}
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails
	return b
}

// gssapi is a proof by Kerberos (RFC 4752).
type gssapi struct {
	guard   *Guard
	context *kerberos.Context
	offered bool
	layer   byte
}

// Next implements ipc.Proof.
func (s *gssapi) Next(token []byte) (answer []byte, done bool, err error) {
	switch {
	case s.context == nil:
		if s.context, err = s.guard.calls.AcceptContext(token); err != nil {
			return nil, false, badProof(err)
		}
		if len(s.context.Reply) > 0 {
			return s.context.Reply, false, nil
		}
		fallthrough
	case !s.offered:
		s.offered = true
		answer, err = s.context.Wrap([]byte{s.guard.layers, 1, 0, 0}, false) // pieces of 64 KiB
		return answer, false, err
	}
	choice, _, err := s.context.Unwrap(token)
	if err != nil {
		return nil, false, badProof(err)
	}
	if len(choice) > 0 && choice[0] == s.guard.layers && choice[0]&noLayer != 0 {
		choice[0] = noLayer // the client for Go repeats the offer, and protects nothing
	}
	if len(choice) < 4 || choice[0]&s.guard.layers != choice[0] || choice[0] != noLayer && choice[0] != integrity && choice[0] != privacy {
		return nil, false, refused("the client chooses a protection that is not offered; set hadoop.rpc.protection")
	}
	if as := string(choice[4:]); as != "" && as != s.context.Principal.String() {
		return nil, false, refused("the client is %s, and asks to be %.255q", s.context.Principal, as)
	}
	if choice[0] != noLayer && !s.context.Numbered {
		return nil, false, refused("the client does not number its messages, and calls have to be protected: use Hadoop's own client, or another that does")
	}
	s.layer = choice[0]
	return nil, true, nil
}

// User implements ipc.Proof.
func (s *gssapi) User(says string) (user, by string, err error) {
	if by, err = s.guard.calls.User(s.context.Principal); err != nil {
		return "", "", badProof(err)
	}
	if says == "" || says == s.context.Principal.String() {
		return by, by, nil
	}
	return says, by, nil
}

// Until implements ipc.Proof.
func (s *gssapi) Until() time.Time { return s.context.Until }

// Protects implements ipc.Proof.
func (s *gssapi) Protects() bool { return s.layer > noLayer }

// Wrap implements ipc.Proof.
func (s *gssapi) Wrap(message []byte) ([]byte, error) {
	return s.context.Wrap(message, s.layer == privacy)
}

// Unwrap implements ipc.Proof.
func (s *gssapi) Unwrap(token []byte) ([]byte, error) {
	message, sealed, err := s.context.Unwrap(token)
	if err == nil && s.layer == privacy && !sealed {
		err = refused("a message is not sealed, as the client has chosen")
	}
	return message, err
}

// digest is a proof by a delegation token (DIGEST-MD5, RFC 2831): its identifier is the name
// and its password the password.
type digest struct {
	guard *Guard
	nonce string
	token Token
	done  bool
}

// Next implements ipc.Proof.
func (d *digest) Next(response []byte) (answer []byte, done bool, err error) {
	wrong := refused("DIGEST-MD5: the client's response is not one to the challenge, or its token is none of this gateway; get a new one")
	f, ok := fields(string(response))
	if !ok || d.done {
		return nil, false, wrong
	}
	d.done = true // a second try begins with another challenge
	if f["nonce"] != d.nonce || f["nc"] != "00000001" || f["realm"] != "default" || f["digest-uri"] != "/default" || f["cnonce"] == "" || f["qop"] != "" && f["qop"] != "auth" ||
		f["authzid"] != "" && f["authzid"] != f["username"] {
		return nil, false, wrong
	}
	identifier, err := base64.StdEncoding.DecodeString(f["username"])
	if err != nil {
		return nil, false, wrong
	}
	var as []string // as whom, if it says so
	if f["authzid"] != "" {
		as = []string{f["authzid"]}
	}
	password := base64.StdEncoding.EncodeToString(d.guard.password("delegation", identifier))
	session := sum(strings.Join(append([]string{string(sum(f["username"] + ":default:" + password)), d.nonce, f["cnonce"]}, as...), ":"))
	respond := func(how string) string {
		return hex.EncodeToString(sum(strings.Join([]string{hex.EncodeToString(session), d.nonce, f["nc"], f["cnonce"], "auth", hex.EncodeToString(sum(how + ":/default"))}, ":")))
	}
	if !hmac.Equal([]byte(f["response"]), []byte(respond("AUTHENTICATE"))) {
		return nil, false, wrong
	}
	if d.token, err = d.guard.read(identifier); err != nil {
		return nil, false, err
	}
	return []byte("rspauth=" + respond("")), true, nil
}

func sum(text string) []byte {
	s := md5.Sum([]byte(text)) //nolint:gosec // see the import
	return s[:]
}

// fields are the names and values of a list, some of which are quoted.
func fields(text string) (map[string]string, bool) {
	f := map[string]string{}
	for text != "" {
		name, rest, ok := strings.Cut(strings.TrimLeft(text, " ,\t\r\n"), "=")
		if !ok || f[name] != "" {
			return nil, strings.TrimSpace(name) == "" && !ok
		}
		var value bytes.Buffer
		if quoted := strings.HasPrefix(rest, `"`); quoted {
			n := 1
			for ; n < len(rest) && rest[n] != '"'; n++ {
				if rest[n] == '\\' && n+1 < len(rest) {
					n++
				}
				value.WriteByte(rest[n])
			}
			if n == len(rest) {
				return nil, false
			}
			text = rest[n+1:]
		} else {
			var plain string
			plain, text, _ = strings.Cut(rest, ",")
			value.WriteString(strings.TrimSpace(plain))
		}
		f[name] = value.String()
	}
	return f, true
}

// User implements ipc.Proof.
func (d *digest) User(says string) (user, by string, err error) {
	user, by = d.token.Owner, d.token.Real
	if by == "" {
		by = user
	}
	if says != "" && says != user {
		err = refused("the token is of %s, and its bearer asks to be %.255q", user, says)
	}
	return user, by, err
}

// Until implements ipc.Proof.
func (d *digest) Until() time.Time { return d.token.Ends }

// Protects implements ipc.Proof.
func (d *digest) Protects() bool { return false }

var errNoLayer = fserror.New(fserror.Unsupported, "gateway", "", "what follows a token is not protected")

// Wrap implements ipc.Proof. It is not called.
func (d *digest) Wrap([]byte) ([]byte, error) { return nil, errNoLayer }

// Unwrap implements ipc.Proof. It is not called.
func (d *digest) Unwrap([]byte) ([]byte, error) { return nil, errNoLayer }
