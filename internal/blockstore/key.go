package blockstore

import (
	"encoding/hex"
	"strconv"
	"strings"

	"github.com/leasefs/leasefs/internal/fserror"
)

// String is "term/seq", both in hexadecimal without leading zeros, as in URLs,
// errors and object names.
func (k Key) String() string {
	b := make([]byte, 0, 33)
	b = strconv.AppendUint(b, k.Term, 16)
	b = append(b, '/')
	return string(strconv.AppendUint(b, k.Seq, 16))
}

// ParseKey reads what String wrote, and nothing else: no leading zeros, signs
// or capitals, so that a key has one name. InvalidArgument otherwise.
func ParseKey(s string) (Key, error) {
	term, seq, ok := strings.Cut(s, "/")
	t, okT := parseHex(term)
	q, okQ := parseHex(seq)
	if !ok || !okT || !okQ {
		return Key{}, fserror.New(fserror.InvalidArgument, "", "", "%.64q is no block key (term/seq in hexadecimal)", s)
	}
	return Key{Term: t, Seq: q}, nil
}

// parseHex reads a canonical hexadecimal number.
func parseHex(s string) (uint64, bool) {
	if s == "" || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	return ParseDigits(s, len(s))
}

// ParseDigits reads a number of exactly so many hexadecimal digits, at most 16,
// without capitals.
func ParseDigits(s string, digits int) (uint64, bool) {
	if len(s) != digits || !isHex(s) {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 16, 64)
	return v, err == nil
}

// isHex reports whether s has only digits and small letters up to f.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// URLPath is the path of a block in a URL of the local store:
// PathPrefix, namespace id (32 hexadecimal digits), key.
func URLPath(namespace [16]byte, key Key) string {
	return PathPrefix + hex.EncodeToString(namespace[:]) + "/" + key.String()
}

// ParseURLPath is the inverse of URLPath. It accepts only what URLPath writes;
// InvalidArgument otherwise.
func ParseURLPath(path string) (namespace [16]byte, key Key, err error) {
	bad := func() ([16]byte, Key, error) {
		return [16]byte{}, Key{}, fserror.New(fserror.InvalidArgument, "", "", "%.128q is no path of a block", path)
	}
	rest, ok := strings.CutPrefix(path, PathPrefix)
	if !ok || len(rest) < 33 || rest[32] != '/' || !isHex(rest[:32]) {
		return bad()
	}
	if _, err := hex.Decode(namespace[:], []byte(rest[:32])); err != nil {
		return bad()
	}
	if key, err = ParseKey(rest[33:]); err != nil {
		return bad()
	}
	return namespace, key, nil
}
