package blocktest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

func (s *suite) list() {
	obj, crc := object(10, 12)
	// Numbers whose decimal, or unpadded hexadecimal, names sort otherwise.
	var keys []blockstore.Key
	for _, seq := range []uint64{1, 2, 9, 10, 16, 99, 255, 256, 1023, 1024, 1025, 70_000, 1 << 33} {
		keys = append(keys, s.key(seq), blockstore.Key{Term: s.term + 16, Seq: seq})
	}
	for _, i := range []int{5, 0, 9} { // some in another order
		keys[i], keys[i+7] = keys[i+7], keys[i]
	}
	for _, key := range keys {
		if err := s.Store.Put(s.Context(), key, obj, crc); err != nil {
			s.Fatal(err)
		}
	}
	slices.SortFunc(keys, func(a, b blockstore.Key) int {
		if a.Less(b) {
			return -1
		}
		return 1
	})
	for _, limit := range []int{1, 3, len(keys), 1000} {
		var got []blockstore.Key
		after := blockstore.Key{Term: s.term}
		for {
			page, err := s.Store.List(s.Context(), after, limit)
			if err != nil {
				s.Fatal(err)
			}
			if len(page) > limit {
				s.Fatalf("List of %d returns %d", limit, len(page))
			}
			if len(page) == 0 {
				break
			}
			for _, info := range page {
				if info.Length != int64(len(obj)) {
					s.Fatalf("List: %+v, want %d bytes", info, len(obj))
				}
				got = append(got, info.Key)
			}
			after = got[len(got)-1]
		}
		if !slices.Equal(got, keys) {
			s.Fatalf("List by %d: %v\nwant %v", limit, got, keys)
		}
	}
}

func (s *suite) deleteKeys() {
	obj, crc := object(1000, 13)
	for seq := uint64(1); seq <= 4; seq++ {
		if err := s.Store.Put(s.Context(), s.key(seq), obj, crc); err != nil {
			s.Fatal(err)
		}
	}
	if err := s.Store.Delete(s.Context(), s.key(1), s.key(1000), s.key(3)); err != nil {
		s.Fatal(err)
	}
	s.content(s.key(1), nil)
	s.content(s.key(2), obj)
	s.content(s.key(3), nil)
	s.content(s.key(4), obj)
	status, body := s.send(s.signGet(s.key(1)), nil)
	s.want("GET of a deleted block", status, body, http.StatusNotFound)
	if err := s.Store.Delete(s.Context(), s.key(1), s.key(3)); err != nil {
		s.Fatalf("deleting again: %v", err)
	}
	if err := s.Store.Delete(s.Context()); err != nil {
		s.Fatalf("deleting nothing: %v", err)
	}
}

func (s *suite) usage() {
	free, total, err := s.Store.Usage(s.Context())
	if err != nil || free < 0 || total < free {
		s.Fatalf("%d of %d bytes free, %v", free, total, err)
	}
}

func (s *suite) probe() {
	for range 2 {
		if err := s.Store.Probe(s.Context()); err != nil {
			s.Fatal(err)
		}
	}
	infos, err := s.Store.List(s.Context(), blockstore.Key{}, 10)
	if err != nil {
		s.Fatal(err)
	}
	for _, info := range infos {
		if info.Key.Term == 0 {
			s.Fatalf("the probe left block %s", info.Key)
		}
	}
}

// probeFindsBrokenStores probes the store through a decorator that takes one of
// its guarantees away.
func (s *suite) probeFindsBrokenStores() {
	probe := func(b *breaker) error {
		b.Store, b.client = s.Store, s.Client
		return blockstore.Probe(s.Context(), b, s.Now(), b.do)
	}
	if err := probe(&breaker{}); err != nil {
		s.Fatalf("a decorator that does nothing: %v", err)
	}
	for _, c := range []struct {
		lacks string
		b     *breaker
	}{
		{"checksum", &breaker{noChecksum: true}},
		{"length", &breaker{noLength: true}},
		{"If-None-Match", &breaker{addHeaders: true}},
		{"second PUT", &breaker{lastPutWins: true}},
		{"signature", &breaker{noSignature: true}},
		{"deleted", &breaker{noDelete: true}},
	} {
		err := probe(c.b)
		if !errors.Is(err, fserror.Unsupported) || !strings.Contains(err.Error(), c.lacks) {
			s.Fatalf("a store that lacks %q: Probe says %v", c.lacks, err)
		}
		if err := s.Store.Delete(s.Context(), c.b.keys()...); err != nil {
			s.Fatal(err)
		}
	}
	down := func(*http.Request) (*http.Response, error) { return nil, errors.New("connection refused") }
	if err := blockstore.Probe(s.Context(), s.Store, s.Now(), down); !errors.Is(err, fserror.Unavailable) {
		s.Fatalf("a store that cannot be reached: Probe says %v", err)
	}
}

// breaker is a store that does not enforce what the store behind it does.
type breaker struct {
	blockstore.Store
	client *http.Client

	noChecksum, noLength, addHeaders, lastPutWins, noSignature, noDelete bool

	mu     sync.Mutex
	signed map[string]blockstore.Key // by path
	ttl    time.Time
}

func (b *breaker) note(signed blockstore.Signed, key blockstore.Key, expires time.Time) {
	path, _, _ := strings.Cut(signed.URL, "?")
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.signed == nil {
		b.signed = make(map[string]blockstore.Key)
	}
	b.signed[path], b.ttl = key, expires
}

func (b *breaker) keys() (keys []blockstore.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range b.signed {
		keys = append(keys, key)
	}
	return keys
}

// SignPut remembers which key a URL is of.
func (b *breaker) SignPut(key blockstore.Key, length int64, crc uint32, expires time.Time) (blockstore.Signed, error) {
	signed, err := b.Store.SignPut(key, length, crc, expires)
	b.note(signed, key, expires)
	return signed, err
}

// SignGet remembers which key a URL is of.
func (b *breaker) SignGet(key blockstore.Key, expires time.Time) (blockstore.Signed, error) {
	signed, err := b.Store.SignGet(key, expires)
	b.note(signed, key, expires)
	return signed, err
}

// Delete does nothing if that is what is broken.
func (b *breaker) Delete(ctx context.Context, keys ...blockstore.Key) error {
	if b.noDelete {
		return nil
	}
	return b.Store.Delete(ctx, keys...)
}

// do sends a request, made acceptable where the broken store would accept it.
func (b *breaker) do(req *http.Request) (*http.Response, error) {
	path, query, _ := strings.Cut(req.URL.String(), "?")
	b.mu.Lock()
	key, ttl := b.signed[path], b.ttl
	b.mu.Unlock()
	var body []byte
	if req.Body != nil {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	whole := req.Header.Get(blockstore.HeaderChecksum) != "" && req.Header.Get(blockstore.HeaderIfNoneMatch) != ""
	sum := blockstore.EncodeChecksum(blockstore.CRC(body)) == req.Header.Get(blockstore.HeaderChecksum)
	length := req.Header.Get("Content-Length") == strconv.Itoa(len(body))
	var fix bool
	if req.Method == http.MethodPut {
		if b.lastPutWins {
			if err := b.Store.Delete(req.Context(), key); err != nil {
				return nil, err
			}
		}
		fix = b.noChecksum && whole && length && !sum && query != "" ||
			b.noLength && whole && !length ||
			b.addHeaders && req.Header.Get(blockstore.HeaderIfNoneMatch) == "" && query != "" ||
			b.noSignature && query == ""
	} else if b.noSignature && query == "" {
		get, err := b.Store.SignGet(key, ttl)
		if err != nil {
			return nil, err
		}
		if req, err = get.NewRequest(req.Context(), nil); err != nil {
			return nil, err
		}
	}
	if fix {
		put, err := b.Store.SignPut(key, int64(len(body)), blockstore.CRC(body), ttl)
		if err != nil {
			return nil, err
		}
		if req, err = put.NewRequest(req.Context(), body); err != nil {
			return nil, err
		}
	}
	return b.client.Do(req)
}
