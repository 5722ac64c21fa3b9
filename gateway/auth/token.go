package auth

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/leasefs/leasefs/gateway/hadoop"
)

// Kinds of tokens, as Hadoop calls them.
const (
	KindHDFS    = "HDFS_DELEGATION_TOKEN"
	KindWebHDFS = "WEBHDFS delegation"
	KindSecure  = "SWEBHDFS delegation" // WebHDFS with TLS
)

// NoCancel is what a client is told that wants to cancel a token.
const NoCancel = "a delegation token of this gateway cannot be cancelled: it is good until it expires (docs/HADOOP.md, Kerberos)"

const (
	maxName       = 255     // bytes of a name in a token
	maxIdentifier = 4 << 10 // bytes
)

// Token is what a delegation token says: that its bearer is Owner, for whom Real acts if
// that is not empty, until Ends. Renewer is as the client gave it, and gives no right here.
type Token struct {
	Owner, Renewer, Real string
	Issued, Ends         time.Time // to the millisecond
}

// Signed is a token on its way.
type Signed struct {
	Identifier []byte // who it names, in Hadoop's format
	Password   []byte // proves that a gateway has said so
	Ends       time.Time
}

// Issue makes a token for owner, for whom by acts; it is empty or the same if nobody does.
func (g *Guard) Issue(owner, by, renewer string) (Signed, error) {
	if len(renewer) > maxName {
		return Signed{}, hadoop.Refuse(hadoop.IllegalArgument, "the name of the renewer has %d bytes, and at most %d are taken", len(renewer), maxName)
	}
	if by == owner {
		by = ""
	}
	now := g.clock.Wall()
	return g.sign("delegation", Token{owner, renewer, by, now, now.Add(g.life)}), nil
}

// maxSend is for how long a client can be sent on with the same token: those that write a large
// file by many requests come back with it.
const maxSend = time.Hour

// Sent is the request with which a client is sent on, and for which alone its token is good: the
// operation, the path, and the inode or the opening that the first request has led to.
type Sent struct{ Op, Path, Inode, Opening string }

// Send makes a token with which a client is sent on: it is good for that request only, for an
// hour at most, and no other token is given for it.
func (g *Guard) Send(owner, by string, at Sent) Signed {
	if by == owner {
		by = ""
	}
	now := g.clock.Wall()
	return g.sign(at.use(), Token{owner, "", by, now, now.Add(min(maxSend, g.life))})
}

func (s Sent) use() string {
	return fmt.Sprintf("sent to %q", []string{s.Op, s.Path, s.Inode, s.Opening})
}

func (g *Guard) sign(use string, t Token) Signed {
	id := []byte{0} // the version
	for _, s := range []string{t.Owner, t.Renewer, t.Real} {
		id = append(putLong(id, int64(len(s))), s...)
	}
	id = putLong(putLong(id, t.Issued.UnixMilli()), t.Ends.UnixMilli())
	var number [4]byte
	_, _ = rand.Read(number[:])                                                // it never fails
	id = putLong(putLong(id, int64(binary.BigEndian.Uint32(number[:])>>1)), 0) // a number of the token's own, and of the key
	return Signed{id, g.password(use, id), time.UnixMilli(t.Ends.UnixMilli())}
}

// password is what who has the token of an identifier knows.
func (g *Guard) password(use string, identifier []byte) []byte {
	return mac(g.key, use, "\x00", string(identifier))
}

// verify returns what a token says that was shown with its password.
func (g *Guard) verify(use string, identifier, password []byte) (Token, error) {
	if len(identifier) > maxIdentifier || !hmac.Equal(password, g.password(use, identifier)) {
		return Token{}, hadoop.Refuse(hadoop.InvalidToken, "the token is none of this gateway, or its key has changed since; get a new one")
	}
	return g.read(identifier)
}

// read decodes an identifier, and refuses it if it has expired.
func (g *Guard) read(identifier []byte) (t Token, err error) {
	invalid := hadoop.Refuse(hadoop.InvalidToken, "the token cannot be read; get a new one")
	rest := identifier
	if len(rest) == 0 || len(rest) > maxIdentifier || rest[0] != 0 {
		return t, invalid
	}
	rest = rest[1:]
	var ok bool
	for _, s := range []*string{&t.Owner, &t.Renewer, &t.Real} {
		var b []byte
		if b, rest, ok = takeBytes(rest); !ok || len(b) > maxName {
			return t, invalid
		}
		*s = string(b)
	}
	for _, at := range []*time.Time{&t.Issued, &t.Ends} {
		var n int64
		if n, rest, ok = takeLong(rest); !ok {
			return t, invalid
		}
		*at = time.UnixMilli(n)
	}
	switch now := g.clock.Wall(); {
	case t.Issued.Sub(now) > tolerance:
		return t, hadoop.Refuse(hadoop.InvalidToken, "token of %.255s was given at %s, which is in the future by the clock here, at %s; get a new one, and set the gateways' clocks", t.Owner, t.Issued.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case !now.Before(t.Ends):
		return t, hadoop.Refuse(hadoop.InvalidToken, "token of %.255s is expired since %s; get a new one", t.Owner, t.Ends.UTC().Format(time.RFC3339))
	}
	return t, nil
}

// Renew is what a client is told that wants to renew a token: when it ends, which nothing
// changes.
func (g *Guard) Renew(identifier, password []byte) (ends time.Time, err error) {
	t, err := g.verify("delegation", identifier, password)
	return t.Ends, err
}

// EncodeURL is a token as a URL has it.
func (s Signed) EncodeURL(kind string) string {
	var b []byte
	for _, part := range [][]byte{s.Identifier, s.Password, []byte(kind), nil} { // the service is the client's to say
		b = append(putLong(b, int64(len(part))), part...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeURL is the reverse.
func decodeURL(text string) (identifier, password []byte, err error) {
	invalid := hadoop.Refuse(hadoop.InvalidToken, "what is given as a token is none")
	if len(text) > 4*maxIdentifier {
		return nil, nil, invalid
	}
	b, err := base64.RawURLEncoding.DecodeString(string(bytes.TrimRight([]byte(text), "=")))
	if err != nil {
		return nil, nil, invalid
	}
	identifier, b, ok := takeBytes(b)
	if ok {
		password, _, ok = takeBytes(b)
	}
	if !ok {
		return nil, nil, invalid
	}
	return identifier, password, nil
}

// FromURL is what a token says that a URL has.
func (g *Guard) FromURL(text string) (Token, error) {
	identifier, password, err := decodeURL(text)
	if err != nil {
		return Token{}, err
	}
	return g.verify("delegation", identifier, password)
}

// FromURLAt is FromURL of a request with which the client may have been sent on.
func (g *Guard) FromURLAt(text string, at Sent) (Token, error) {
	identifier, password, err := decodeURL(text)
	if err != nil {
		return Token{}, err
	}
	if hmac.Equal(password, g.password(at.use(), identifier)) {
		return g.verify(at.use(), identifier, password)
	}
	return g.verify("delegation", identifier, password)
}

// RenewURL is Renew for a token that a URL has.
func (g *Guard) RenewURL(text string) (time.Time, error) {
	t, err := g.FromURL(text)
	return t.Ends, err
}

// putLong appends a number as Hadoop writes one: a byte if it is small, else one that says
// how many follow, the highest first.
func putLong(b []byte, n int64) []byte {
	if n >= -112 && n <= 127 {
		return append(b, byte(n)) //nolint:gosec // it fits
	}
	mark := -112
	if n < 0 {
		n, mark = ^n, -120
	}
	size := 1
	for n>>(8*size) != 0 && size < 8 {
		size++
	}
	b = append(b, byte(mark-size)) //nolint:gosec // a byte of Java's
	for size--; size >= 0; size-- {
		b = append(b, byte(n>>(8*size))) //nolint:gosec // a part of it
	}
	return b
}

// takeLong is the reverse.
func takeLong(b []byte) (n int64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	mark, b := int(int8(b[0])), b[1:] //nolint:gosec // a byte of Java's
	if mark >= -112 {
		return int64(mark), b, true
	}
	size, negative := -112-mark, mark < -120
	if negative {
		size = -120 - mark
	}
	if len(b) < size {
		return 0, nil, false
	}
	for _, c := range b[:size] {
		n = n<<8 | int64(c)
	}
	if negative {
		n = ^n
	}
	return n, b[size:], true
}

func takeBytes(b []byte) (part, rest []byte, ok bool) {
	n, b, ok := takeLong(b)
	if !ok || n < 0 || n > int64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
