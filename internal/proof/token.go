package proof

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"unicode"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/rulefile"
)

// MaxToken is how many bytes a token may have; those of some issuers are long.
const MaxToken = 8 << 10

// NewToken makes a token of 256 random bits.
func NewToken() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// Hash is what a server keeps of a token. Tokens are random, so no salt is needed, nor a slow hash.
func Hash(token string) [32]byte { return sha256.Sum256([]byte(token)) }

// Line is the line of a server's file that lets a token prove that its bearer is the user.
// Groups, if there are any, replace the groups that the server's machine knows.
func Line(token, user string, groups ...string) (string, error) {
	for _, name := range append([]string{user}, groups...) {
		if name == "" || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }) {
			return "", fserror.New(fserror.InvalidArgument, "token", "", "the name %q is empty, or has spaces or characters that cannot be printed, which a file of tokens cannot have", name)
		}
	}
	sum := Hash(token)
	return strings.Join(append([]string{hex.EncodeToString(sum[:]), user}, groups...), " "), nil
}

// Bearer is whom a token names.
type Bearer struct {
	User   string
	Groups []string // nil: those that the server's machine knows
}

// Tokens are those of a server's file, by their hashes.
type Tokens struct {
	// secret makes the key of a hash: how long a look-up takes tells nothing of a hash to
	// who does not know it.
	secret [32]byte
	known  map[[32]byte]known
}

type known struct {
	sum    [32]byte
	bearer Bearer
}

func (t *Tokens) key(sum [32]byte) [32]byte {
	return sha256.Sum256(append(t.secret[:len(t.secret):len(t.secret)], sum[:]...))
}

// OpenTokens reads a server's file: a line for each token, as Line makes it. Empty lines and
// those that begin with # mean nothing.
func OpenTokens(c clock.Clock, name string) (*File[*Tokens], error) {
	return Open(c, func(contents [][]byte) (*Tokens, error) {
		t := &Tokens{known: map[[32]byte]known{}}
		_, _ = rand.Read(t.secret[:]) // never fails
		bad := func(n int, why string) error {
			// Not the line: it may be a token that somebody put there by mistake.
			return fmt.Errorf("line %d %s; a line is: the token's SHA-256 in hexadecimal, a user, and groups if there are any", n, why)
		}
		if err := rulefile.Each(contents[0], func(n int, words []string) error {
			raw, err := hex.DecodeString(words[0])
			if err != nil || len(raw) != sha256.Size {
				return bad(n, "does not begin with a hash of 64 digits")
			}
			if len(words) < 2 {
				return bad(n, "names no user")
			}
			k := known{sum: [32]byte(raw), bearer: Bearer{User: words[1]}}
			if len(words) > 2 {
				k.bearer.Groups = words[2:]
			}
			key := t.key(k.sum)
			if _, twice := t.known[key]; twice {
				return bad(n, "has the hash of an earlier line")
			}
			t.known[key] = k
			return nil
		}); err != nil {
			return nil, fserror.New(fserror.InvalidArgument, "read tokens", name, "%v", err)
		}
		return t, nil
	}, name)
}

// Find returns whom the token of a hash names.
func (t *Tokens) Find(sum [32]byte) (b Bearer, ok bool) {
	k, ok := t.known[t.key(sum)]
	if !ok || subtle.ConstantTimeCompare(k.sum[:], sum[:]) != 1 {
		return Bearer{}, false
	}
	return k.bearer, true
}

// Own is what a client's file has.
type Own struct {
	User  string // whom the token names, for a client that is not told; may be empty
	Token string
}

// String tells no secret.
func (o Own) String() string { return "a token of " + o.User }

// OthersRead reports whether others than its owner may read a file with a secret.
func OthersRead(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o077 != 0
}

// IsToken reports whether a text can be a token: it is not too long, and has only characters that
// tokens have.
func IsToken(s string) bool {
	return s != "" && len(s) <= MaxToken && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// OpenOwn reads a client's file: the user and the token, or the token alone. Nobody but its
// owner may be able to read it.
func OpenOwn(c clock.Clock, name string) (*File[Own], error) {
	return Open(c, func(contents [][]byte) (Own, error) {
		bad := func(kind fserror.Kind, why string) error { return fserror.New(kind, "read token", name, "%s", why) }
		// A token that others could read until now is to be replaced.
		if OthersRead(name) {
			return Own{}, bad(fserror.Permission, "others may read it: make a new token, and set the mode of its file to 600 before it is in there")
		}
		words := strings.Fields(string(contents[0]))
		var o Own
		switch len(words) {
		case 1:
			o.Token = words[0]
		case 2:
			o.User, o.Token = words[0], words[1]
		default:
			return o, bad(fserror.InvalidArgument, "it has to have a user and a token, or a token alone")
		}
		if !IsToken(o.Token) {
			return Own{}, bad(fserror.InvalidArgument, "not a valid token: it is too long, or has characters that no token has")
		}
		return o, nil
	}, name)
}
