package blocktest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Harness is one store under test and what reaches it.
type Harness struct {
	Store  blockstore.Store
	Client *http.Client     // nil is http.DefaultClient
	Now    func() time.Time // the time that the store goes by; nil is time.Now
	// Advance moves that time on. Nil if the test does not have it in its hand:
	// then the test of expiry takes a second of real time.
	Advance func(time.Duration)
}

// Opener opens a store for one test, and cleans up with t.Cleanup.
type Opener func(t *testing.T) Harness

// Run runs the suite.
func Run(t *testing.T, open Opener) {
	for _, c := range []struct {
		name string
		test func(*suite)
	}{
		{"PutAndGet", (*suite).putAndGet},
		{"SignedPutAndGet", (*suite).signedPutAndGet},
		{"Ranges", (*suite).ranges},
		{"FirstPutWins", (*suite).firstPutWins},
		{"FirstPutWinsConcurrently", (*suite).firstPutWinsConcurrently},
		{"WrongBytes", (*suite).wrongBytes},
		{"WrongLength", (*suite).wrongLength},
		{"MissingHeaders", (*suite).missingHeaders},
		{"AlteredURL", (*suite).alteredURL},
		{"URLOfAnotherBlock", (*suite).urlOfAnotherBlock},
		{"ExpiredURL", (*suite).expiredURL},
		{"NotFound", (*suite).notFound},
		{"List", (*suite).list},
		{"Delete", (*suite).deleteKeys},
		{"Usage", (*suite).usage},
		{"Probe", (*suite).probe},
		{"ProbeFindsBrokenStores", (*suite).probeFindsBrokenStores},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := open(t)
			if h.Client == nil {
				h.Client = http.DefaultClient
			}
			if h.Now == nil {
				h.Now = time.Now
			}
			// #nosec G404 -- keys that earlier runs on a shared store hardly used
			c.test(&suite{T: t, Harness: h, term: 1 + rand.Uint64N(900)})
		})
	}
}

// suite is one test under way.
type suite struct {
	*testing.T
	Harness
	term uint64
}

func (s *suite) key(seq uint64) blockstore.Key { return blockstore.Key{Term: s.term, Seq: seq} }

// object seals n bytes that depend on seed.
func object(n int, seed byte) ([]byte, uint32) {
	data := make([]byte, n, blockstore.StoredLength(int64(n)))
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(data)
	return blockstore.Seal(data)
}

func (s *suite) soon() time.Time { return s.Now().Add(time.Minute) }

func (s *suite) signPut(key blockstore.Key, obj []byte) blockstore.Signed {
	s.Helper()
	signed, err := s.Store.SignPut(key, int64(len(obj)), blockstore.CRC(obj), s.soon())
	if err != nil {
		s.Fatal(err)
	}
	if signed.Method != http.MethodPut {
		s.Fatalf("SignPut signs %q", signed.Method)
	}
	return signed
}

func (s *suite) signGet(key blockstore.Key) blockstore.Signed {
	s.Helper()
	signed, err := s.Store.SignGet(key, s.soon())
	if err != nil {
		s.Fatal(err)
	}
	return signed
}

// send sends a signed request, altered, and returns status and body.
func (s *suite) send(signed blockstore.Signed, body []byte, alter ...func(*http.Request)) (int, []byte) {
	s.Helper()
	req, err := signed.NewRequest(s.Context(), body)
	if err != nil {
		s.Fatal(err)
	}
	for _, a := range alter {
		a(req)
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		s.Fatal(err)
	}
	return resp.StatusCode, got
}

// want checks a status.
func (s *suite) want(what string, got int, body []byte, wanted ...int) {
	s.Helper()
	if !slices.Contains(wanted, got) {
		s.Fatalf("%s: status %d, want %v; body %.300q", what, got, wanted, body)
	}
}

// content checks what the store has under a key; nil: nothing.
func (s *suite) content(key blockstore.Key, want []byte) {
	s.Helper()
	info, err := s.Store.Stat(s.Context(), key)
	r, gerr := s.Store.Get(s.Context(), key, 0, -1)
	if want == nil {
		if !errors.Is(err, fserror.NotFound) || !errors.Is(gerr, fserror.NotFound) {
			s.Fatalf("block %s: Stat %v, Get %v; want NotFound", key, err, gerr)
		}
		return
	}
	if err != nil || gerr != nil {
		s.Fatalf("block %s: Stat %v, Get %v", key, err, gerr)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil {
		s.Fatal(err)
	}
	if info.Length != int64(len(want)) || info.Key != key || !bytes.Equal(got, want) {
		s.Fatalf("block %s: %d bytes, info %+v; not the %d that were put", key, len(got), info, len(want))
	}
}

func (s *suite) putAndGet() {
	for i, n := range []int{1, blockstore.ChunkSize, 3*blockstore.ChunkSize + 5, 2 << 20} {
		obj, crc := object(n, byte(i))
		key := s.key(uint64(i + 1))
		if err := s.Store.Put(s.Context(), key, obj, crc); err != nil {
			s.Fatal(err)
		}
		s.content(key, obj)
		other, otherCRC := object(n, 99)
		if err := s.Store.Put(s.Context(), key, other, otherCRC); !errors.Is(err, fserror.Exists) {
			s.Fatalf("second Put: %v, want Exists", err)
		}
		s.content(key, obj)
	}
	obj, crc := object(1000, 7)
	if err := s.Store.Put(s.Context(), s.key(50), obj, crc+1); !errors.Is(err, fserror.Damaged) {
		s.Fatalf("Put with a wrong checksum: %v, want Damaged", err)
	}
	s.content(s.key(50), nil)
}

func (s *suite) signedPutAndGet() {
	obj, crc := object(300_000, 1)
	key := s.key(1)
	status, body := s.send(s.signPut(key, obj), obj)
	s.want("PUT", status, body, http.StatusOK)
	s.content(key, obj)
	status, body = s.send(s.signGet(key), nil)
	s.want("GET", status, nil, http.StatusOK)
	if !bytes.Equal(body, obj) {
		s.Fatal("GET returns other bytes")
	}
	if err := blockstore.Verify(key, body, crc); err != nil {
		s.Fatal(err)
	}
}

func (s *suite) ranges() {
	obj, crc := object(300_000, 2)
	key := s.key(1)
	if err := s.Store.Put(s.Context(), key, obj, crc); err != nil {
		s.Fatal(err)
	}
	size := int64(len(obj))
	for _, r := range [][2]int64{{0, 1}, {0, size}, {size - 1, 1}, {1000, 65536}, {300_000, size - 300_000}, {size - 10, 1000}} {
		want := obj[r[0]:min(r[0]+r[1], size)]
		rd, err := s.Store.Get(s.Context(), key, r[0], r[1])
		if err != nil {
			s.Fatal(err)
		}
		got, err := io.ReadAll(rd)
		if err := errors.Join(err, rd.Close()); err != nil || !bytes.Equal(got, want) {
			s.Fatalf("Get %v: %d bytes, %v", r, len(got), err)
		}
		status, got := s.send(s.signGet(key), nil, func(req *http.Request) {
			req.Header.Set("Range", blockstore.RangeHeader(r[0], r[1]))
		})
		s.want("GET of a range", status, nil, http.StatusPartialContent)
		if !bytes.Equal(got, want) {
			s.Fatalf("GET of range %v: other bytes", r)
		}
	}
	if _, err := s.Store.Get(s.Context(), key, size, 1); !errors.Is(err, fserror.InvalidArgument) {
		s.Fatalf("Get beyond the end: %v, want InvalidArgument", err)
	}
	status, body := s.send(s.signGet(key), nil, func(req *http.Request) {
		req.Header.Set("Range", blockstore.RangeHeader(size, 1))
	})
	s.want("GET beyond the end", status, body, http.StatusRequestedRangeNotSatisfiable)
}

func (s *suite) firstPutWins() {
	obj, _ := object(100_000, 3)
	other, _ := object(100_000, 4)
	key := s.key(1)
	first, second := s.signPut(key, obj), s.signPut(key, other)
	status, body := s.send(first, obj)
	s.want("first PUT", status, body, http.StatusOK)
	for range 2 {
		status, body = s.send(first, obj)
		s.want("the same PUT again", status, body, http.StatusPreconditionFailed)
		status, body = s.send(second, other)
		s.want("another PUT", status, body, http.StatusPreconditionFailed)
	}
	s.content(key, obj)
}

func (s *suite) firstPutWinsConcurrently() {
	const writers, rounds = 8, 5
	for round := range rounds {
		key := s.key(uint64(round + 1))
		var wg sync.WaitGroup
		var mu sync.Mutex
		var winners []int
		for w := range writers {
			obj, _ := object(200_000+w, byte(w))
			signed := s.signPut(key, obj)
			wg.Go(func() {
				req, err := signed.NewRequest(s.Context(), obj)
				if err != nil {
					s.Error(err)
					return
				}
				resp, err := s.Client.Do(req)
				if err != nil {
					s.Error(err)
					return
				}
				_ = resp.Body.Close()
				switch resp.StatusCode {
				case http.StatusOK:
					mu.Lock()
					winners = append(winners, w)
					mu.Unlock()
				case http.StatusPreconditionFailed, http.StatusConflict: // S3 may say either of a race
				default:
					s.Errorf("status %d", resp.StatusCode)
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			s.Fatalf("round %d: PUTs %v won, want exactly one", round, winners)
		}
		obj, _ := object(200_000+winners[0], byte(winners[0]))
		s.content(key, obj)
	}
}

func (s *suite) wrongBytes() {
	obj, _ := object(200_000, 5)
	bad := slices.Clone(obj)
	bad[150_000] ^= 4
	key := s.key(1)
	signed := s.signPut(key, obj)
	status, body := s.send(signed, bad)
	s.want("PUT of wrong bytes", status, body, http.StatusBadRequest)
	s.content(key, nil)
	// The key is not spoiled by it.
	status, body = s.send(signed, obj)
	s.want("PUT of the right bytes", status, body, http.StatusOK)
	s.content(key, obj)
}

func (s *suite) wrongLength() {
	obj, _ := object(200_000, 6)
	key := s.key(1)
	signed := s.signPut(key, obj)
	for _, body := range [][]byte{obj[:len(obj)-1], append(slices.Clone(obj), 0), obj[:1]} {
		status, answer := s.send(signed, body)
		s.want("PUT of another length", status, answer, http.StatusForbidden, http.StatusBadRequest)
		s.content(key, nil)
	}
}

func (s *suite) missingHeaders() {
	obj, _ := object(1000, 7)
	other, _ := object(1000, 8)
	key := s.key(1)
	signed := s.signPut(key, obj)
	for _, name := range []string{blockstore.HeaderChecksum, blockstore.HeaderIfNoneMatch} {
		status, body := s.send(signed, obj, func(r *http.Request) { r.Header.Del(name) })
		s.want("PUT without "+name, status, body, http.StatusForbidden)
		s.content(key, nil)
	}
	status, body := s.send(signed, other, func(r *http.Request) {
		r.Header.Set(blockstore.HeaderChecksum, blockstore.EncodeChecksum(blockstore.CRC(other)))
	})
	s.want("PUT with the checksum of other bytes", status, body, http.StatusForbidden)
	s.content(key, nil)
}

func (s *suite) alteredURL() {
	obj, crc := object(1000, 9)
	key := s.key(1)
	signed := s.signPut(key, obj)
	for at := range len(signed.URL) {
		if s.Failed() {
			return
		}
		i := len(signed.URL) - 1 - at
		if signed.URL[i] == '?' {
			break // the query was altered in every place
		}
		if at%7 != 0 {
			continue
		}
		altered := signed
		c := byte('0')
		if signed.URL[i] == c {
			c = '1'
		}
		altered.URL = signed.URL[:i] + string(c) + signed.URL[i+1:]
		status, body := s.send(altered, obj)
		// Some stores say 404 of an access key that they do not know.
		s.want("PUT to "+altered.URL, status, body, http.StatusForbidden, http.StatusBadRequest, http.StatusNotFound)
	}
	s.content(key, nil)
	if err := s.Store.Put(s.Context(), key, obj, crc); err != nil {
		s.Fatal(err)
	}
	status, body := s.send(s.signGet(key), nil, func(r *http.Request) { r.URL.RawQuery = "" })
	s.want("GET without a signature", status, body, http.StatusForbidden)
	get := s.signGet(key)
	get.Method = http.MethodPut
	get.Header = signed.Header
	status, body = s.send(get, obj)
	s.want("PUT with the URL of a GET", status, body, http.StatusForbidden)
}

func (s *suite) urlOfAnotherBlock() {
	obj, crc := object(1000, 10)
	if err := s.Store.Put(s.Context(), s.key(0xa1), obj, crc); err != nil {
		s.Fatal(err)
	}
	mine, others := s.signGet(s.key(0xb2)), s.signGet(s.key(0xa1))
	status, body := s.send(mine, nil, func(r *http.Request) {
		r.URL.Path = pathOf(s, others)
	})
	s.want("GET of another block", status, body, http.StatusForbidden)
	put := s.signPut(s.key(0xb2), obj)
	status, body = s.send(put, obj, func(r *http.Request) { r.URL.Path = pathOf(s, others) })
	s.want("PUT to another block", status, body, http.StatusForbidden)
}

func pathOf(s *suite, signed blockstore.Signed) string {
	req, err := signed.NewRequest(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	return req.URL.Path
}

func (s *suite) expiredURL() {
	obj, crc := object(1000, 11)
	there, missing := s.key(1), s.key(2)
	if err := s.Store.Put(s.Context(), there, obj, crc); err != nil {
		s.Fatal(err)
	}
	expires := s.Now().Add(time.Second)
	put, err := s.Store.SignPut(missing, int64(len(obj)), crc, expires)
	if err != nil {
		s.Fatal(err)
	}
	get, err := s.Store.SignGet(there, expires)
	if err != nil {
		s.Fatal(err)
	}
	if put.Expires.After(expires.Add(time.Second)) {
		s.Fatalf("signed until %v, %v was asked for", put.Expires, expires)
	}
	if s.Advance != nil {
		s.Advance(time.Second + 2*time.Millisecond)
	} else {
		s.awaitRefusal(get)
	}
	status, body := s.send(get, nil)
	s.want("GET after its time", status, body, http.StatusForbidden)
	status, body = s.send(put, obj)
	s.want("PUT after its time", status, body, http.StatusForbidden)
	s.content(missing, nil)
}

// awaitRefusal asks until the URL is over.
func (s *suite) awaitRefusal(get blockstore.Signed) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range 400 {
		if status, _ := s.send(get, nil); status == http.StatusForbidden {
			return
		}
		<-tick.C
	}
	s.Fatal("a URL that is valid for a second is so for 20")
}

func (s *suite) notFound() {
	key := s.key(77)
	s.content(key, nil)
	status, body := s.send(s.signGet(key), nil)
	s.want("GET of a missing block", status, body, http.StatusNotFound)
}
