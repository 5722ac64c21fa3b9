package local

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
)

// grant is what a signed URL allows.
type grant struct {
	expires time.Time
	length  int64  // of a PUT
	crc     uint32 // of a PUT
}

// The query of a signed URL is terms, then "&sig=" and the HMAC of signedText.
// Terms are verified as the bytes they are, and only then read.
const (
	sigMark   = "&" + blockstore.QuerySignature + "="
	sigDigits = 2 * sha256.Size
)

// signer makes and checks signatures. It is safe for concurrent use.
type signer struct {
	pool  sync.Pool
	clock clock.Clock
	began time.Time // see now
}

func newSigner(secret []byte, c clock.Clock) *signer {
	key := append([]byte(nil), secret...)
	return &signer{sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}, c, c.Wall().Add(-c.Boot())}
}

// now is the time by which signed URLs expire: that of the day when the store was opened, and
// what has passed since. This store alone checks what it has signed, so that a clock which is set
// meanwhile neither ends URLs early nor makes them live longer. After a restart the time
// of day decides once more.
func (g *signer) now() time.Time { return g.began.Add(g.clock.Boot()) }

// expiry is a time of day as now will reach it, in milliseconds.
func (g *signer) expiry(at time.Time) int64 { return g.now().Add(at.Sub(g.clock.Wall())).UnixMilli() }

// sum is the HMAC-SHA256 over method, path and terms, each on a line.
func (g *signer) sum(method, path, terms string) [sha256.Size]byte {
	h := g.pool.Get().(hash.Hash)
	defer g.pool.Put(h)
	h.Reset()
	text := make([]byte, 0, 256)
	text = append(text, "leasefs block 1\n"...)
	text = append(text, method...)
	text = append(text, '\n')
	text = append(text, path...)
	text = append(text, '\n')
	text = append(text, terms...)
	h.Write(text)
	var out [sha256.Size]byte
	h.Sum(out[:0])
	return out
}

// sign returns the whole query.
func (g *signer) sign(method, path, terms string) string {
	sum := g.sum(method, path, terms)
	return terms + sigMark + hex.EncodeToString(sum[:])
}

// verify returns the terms of a query that sign made for the method and path.
func (g *signer) verify(method, path, query string) (terms string, ok bool) {
	cut := len(query) - sigDigits - len(sigMark)
	if cut < 0 || query[cut:cut+len(sigMark)] != sigMark {
		return "", false
	}
	terms = query[:cut]
	sum := g.sum(method, path, terms)
	// Hexadecimal is compared, so that capitals are another signature.
	var want [sigDigits]byte
	hex.Encode(want[:], sum[:])
	return terms, hmac.Equal(want[:], []byte(query[cut+len(sigMark):]))
}

func getTerms(expires int64) string {
	return blockstore.QueryExpires + "=" + strconv.FormatInt(expires, 10)
}

func putTerms(expires, length int64, crc uint32) string {
	return getTerms(expires) + "&" + blockstore.QueryLength + "=" + strconv.FormatInt(length, 10) +
		"&" + blockstore.QueryChecksum + fmt.Sprintf("=%08x", crc)
}

// parseTerms reads what getTerms or putTerms wrote, and nothing else.
func parseTerms(terms string, put bool) (grant, bool) {
	var g grant
	rest, ok := strings.CutPrefix(terms, blockstore.QueryExpires+"=")
	if !ok {
		return g, false
	}
	exp, rest, more := strings.Cut(rest, "&")
	ms, err := strconv.ParseInt(exp, 10, 64)
	if err != nil || more != put {
		return g, false
	}
	g.expires = time.UnixMilli(ms)
	if !put {
		return g, terms == getTerms(ms)
	}
	lengthTerm, crcTerm, _ := strings.Cut(rest, "&")
	length, okL := strings.CutPrefix(lengthTerm, blockstore.QueryLength+"=")
	crc, okC := strings.CutPrefix(crcTerm, blockstore.QueryChecksum+"=")
	n, errL := strconv.ParseInt(length, 10, 64)
	c, errC := strconv.ParseUint(crc, 16, 32)
	if !okL || !okC || errL != nil || errC != nil {
		return g, false
	}
	g.length, g.crc = n, uint32(c)
	return g, terms == putTerms(ms, n, g.crc)
}

// SignPut signs one PUT. Expiry is cut to milliseconds. InvalidArgument for a
// length below 1, TooLarge for one beyond Config.MaxObject.
func (s *Store) SignPut(key blockstore.Key, length int64, crc32c uint32, expires time.Time) (blockstore.Signed, error) {
	if err := blockstore.CheckLength(key, length, s.cfg.MaxObject); err != nil {
		return blockstore.Signed{}, err
	}
	path := blockstore.URLPath(s.cfg.NamespaceID, key)
	ms := s.mac.expiry(expires)
	return blockstore.Signed{
		URL:     s.cfg.BaseURL() + path + "?" + s.mac.sign(http.MethodPut, path, putTerms(ms, length, crc32c)),
		Method:  http.MethodPut,
		Header:  blockstore.PutHeader(length, crc32c),
		Expires: expires.Truncate(time.Millisecond),
	}, nil
}

// SignGet signs GETs and HEADs. Expiry is cut to milliseconds.
func (s *Store) SignGet(key blockstore.Key, expires time.Time) (blockstore.Signed, error) {
	path := blockstore.URLPath(s.cfg.NamespaceID, key)
	ms := s.mac.expiry(expires)
	return blockstore.Signed{
		URL:     s.cfg.BaseURL() + path + "?" + s.mac.sign(http.MethodGet, path, getTerms(ms)),
		Method:  http.MethodGet,
		Header:  http.Header{},
		Expires: expires.Truncate(time.Millisecond),
	}, nil
}
