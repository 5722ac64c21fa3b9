package local

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// send returns status and, of a refusal, the kind in its body.
func send(t *testing.T, client *http.Client, signed blockstore.Signed, body []byte, alter ...func(*http.Request)) (int, string) {
	t.Helper()
	req, err := signed.NewRequest(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range alter {
		a(req)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 300 {
		return resp.StatusCode, ""
	}
	line, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var e blockstore.ErrorBody
	if req.Method == http.MethodHead {
		return resp.StatusCode, ""
	}
	if err := json.Unmarshal(line, &e); err != nil || strings.Count(string(line), "\n") != 1 || e.Error.Message == "" {
		t.Fatalf("body of %d: %q, %v", resp.StatusCode, line, err)
	}
	return resp.StatusCode, e.Error.Kind
}

func TestAnswers(t *testing.T) {
	s, _, h := harness(t, Config{Dir: t.TempDir(), MaxObject: 100_000})
	obj, crc := object(50_000, 1)
	other, _ := object(50_000, 2)
	there, free := blockstore.Key{Term: 1, Seq: 1}, blockstore.Key{Term: 1, Seq: 2}
	if err := s.Put(t.Context(), there, obj, crc); err != nil {
		t.Fatal(err)
	}
	later := h.Now().Add(time.Minute)
	put := func(key blockstore.Key) blockstore.Signed {
		signed, err := s.SignPut(key, int64(len(obj)), crc, later)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	get := func(key blockstore.Key, expires time.Time) blockstore.Signed {
		signed, err := s.SignGet(key, expires)
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	as := func(method string, signed blockstore.Signed) blockstore.Signed {
		signed.Method = method
		return signed
	}
	// A signature is over lengths that this store would not sign.
	huge := put(free)
	path := blockstore.URLPath(testID, free)
	huge.URL = s.cfg.BaseURL() + path + "?" + s.mac.sign(http.MethodPut, path, putTerms(later.UnixMilli(), 200_000, crc))
	foreign := blockstore.URLPath([16]byte{9}, there)
	foreign = s.cfg.BaseURL() + foreign + "?" + s.mac.sign(http.MethodGet, foreign, getTerms(later.UnixMilli()))
	setRange := func(v string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Range", v) }
	}
	for _, c := range []struct {
		name   string
		signed blockstore.Signed
		body   []byte
		alter  func(*http.Request)
		status int
		kind   string
		reason Reason
	}{
		{"wrong bytes", put(free), other, nil, 400, "DAMAGED", ReasonChecksum},
		{"second PUT", put(there), obj, nil, 412, "EXISTS", ReasonExists},
		{"too large", huge, make([]byte, 200_000), nil, 413, "TOO_LARGE", ReasonTooLarge},
		{"no length", put(free), obj, func(r *http.Request) { r.ContentLength = -1 }, 411, "INVALID_ARGUMENT", ReasonHeaders},
		{"other length", put(free), obj[:10], nil, 403, "PERMISSION", ReasonHeaders},
		{"two checksums", put(free), obj, func(r *http.Request) {
			r.Header.Add(blockstore.HeaderChecksum, blockstore.EncodeChecksum(crc))
		}, 403, "PERMISSION", ReasonHeaders},
		{"If-None-Match of a tag", put(free), obj, func(r *http.Request) { r.Header.Set("If-None-Match", `"x"`) }, 403, "PERMISSION", ReasonHeaders},
		{"capitals in the signature", get(there, later), nil, func(r *http.Request) {
			q, sig, _ := strings.Cut(r.URL.RawQuery, "sig=")
			r.URL.RawQuery = q + "sig=" + strings.ToUpper(sig) + ""
		}, 403, "PERMISSION", ReasonSignature},
		{"one more parameter", get(there, later), nil, func(r *http.Request) { r.URL.RawQuery = "x=1&" + r.URL.RawQuery }, 403, "PERMISSION", ReasonSignature},
		{"one more parameter behind", get(there, later), nil, func(r *http.Request) { r.URL.RawQuery += "&x=1" }, 403, "PERMISSION", ReasonSignature},
		{"escaped path", get(there, later), nil, func(r *http.Request) { r.URL.RawPath = strings.Replace(r.URL.Path, "blocks", "block%73", 1) }, 403, "PERMISSION", ReasonSignature},
		{"zero before a number", get(there, later), nil, func(r *http.Request) { r.URL.Path = strings.Replace(r.URL.Path, "/1/1", "/1/01", 1) }, 403, "PERMISSION", ReasonSignature},
		{"path outside", get(there, later), nil, func(r *http.Request) { r.URL.Path = "/v1/blocks/../../etc/passwd" }, 403, "PERMISSION", ReasonSignature},
		{"other namespace", as(http.MethodGet, blockstore.Signed{URL: foreign}), nil, nil, 403, "PERMISSION", ReasonSignature},
		{"GET with a PUT's URL", as(http.MethodGet, put(there)), nil, nil, 403, "PERMISSION", ReasonSignature},
		{"expired", get(there, h.Now().Add(-time.Millisecond)), nil, nil, 403, "PERMISSION", ReasonExpired},
		{"missing", get(free, later), nil, nil, 404, "NOT_FOUND", ReasonNotFound},
		{"HEAD of a missing block", as(http.MethodHead, get(free, later)), nil, nil, 404, "", ReasonNotFound},
		{"DELETE", as(http.MethodDelete, get(there, later)), nil, nil, 405, "UNSUPPORTED", ReasonOther},
		{"range behind the end", get(there, later), nil, setRange("bytes=60000-"), 416, "INVALID_ARGUMENT", ReasonRange},
		{"two ranges", get(there, later), nil, setRange("bytes=0-1,5-6"), 416, "INVALID_ARGUMENT", ReasonRange},
		{"backwards", get(there, later), nil, setRange("bytes=9-5"), 416, "INVALID_ARGUMENT", ReasonRange},
		{"lines", get(there, later), nil, setRange("lines=0-1"), 416, "INVALID_ARGUMENT", ReasonRange},
		{"last none", get(there, later), nil, setRange("bytes=-0"), 416, "INVALID_ARGUMENT", ReasonRange},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := s.Stats().Rejected[c.reason]
			var alter []func(*http.Request)
			if c.alter != nil {
				alter = append(alter, c.alter)
			}
			status, kind := send(t, h.Client, c.signed, c.body, alter...)
			if status != c.status || kind != c.kind {
				t.Errorf("%d %s, want %d %s", status, kind, c.status, c.kind)
			}
			if got := s.Stats().Rejected[c.reason]; got != before+1 {
				t.Errorf("counter %s went from %d to %d", c.reason, before, got)
			}
		})
	}
	if _, err := s.Stat(t.Context(), free); !errors.Is(err, fserror.NotFound) {
		t.Errorf("something was stored: %v", err)
	}
	for spec, want := range map[string]string{
		"bytes=0-0": "bytes 0-0/50004", "bytes=50000-90000": "bytes 50000-50003/50004", "bytes=-4": "bytes 50000-50003/50004", "bytes=7-": "bytes 7-50003/50004", "bytes=-99999": "bytes 0-50003/50004",
	} {
		req, err := get(there, later).NewRequest(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Range", spec)
		resp, err := h.Client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 206 || resp.Header.Get("Content-Range") != want || n != resp.ContentLength {
			t.Errorf("%s: %d %q, %d bytes", spec, resp.StatusCode, resp.Header.Get("Content-Range"), n)
		}
	}
	head, err := as(http.MethodHead, get(there, later)).NewRequest(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Client.Do(head)
	if err != nil || resp.StatusCode != 200 || resp.ContentLength != int64(len(obj)) {
		t.Errorf("HEAD: %+v, %v", resp, err)
	}
	resp.Body.Close()
}

func TestChecksumMismatchNamesBoth(t *testing.T) {
	s, _, _ := harness(t, Config{Dir: t.TempDir()})
	obj, crc := object(100, 1)
	err := s.Put(t.Context(), blockstore.Key{Term: 0xa, Seq: 0xb}, obj, ^crc)
	for _, part := range []string{"a/b", fmt.Sprintf("%08x", crc), fmt.Sprintf("%08x", ^crc)} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v: does not name %s", err, part)
		}
	}
}

// TestExpiryDuringPut: a PUT that is slower than its URL lives is not published,
// since the collector may have swept the key when the URL was over.
func TestExpiryDuringPut(t *testing.T) {
	s, fake, _ := harness(t, Config{Dir: t.TempDir()})
	obj, crc := object(2*pieceSize, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	signed, err := s.SignPut(key, int64(len(obj)), crc, fake.Wall().Add(time.Second))
	if err != nil {
		t.Fatal(err)
	}
	req := httptest.NewRequest(http.MethodPut, signed.URL, readerFunc(func(p []byte) (int, error) {
		fake.Advance(2 * time.Second)
		n := copy(p, obj)
		obj = obj[n:]
		return n, nil
	}))
	req.Header, req.ContentLength = signed.Header, int64(len(obj))
	rec := httptest.NewRecorder()
	s.Handler().ServeHTTP(rec, req)
	if rec.Code != http.StatusForbidden {
		t.Fatalf("status %d", rec.Code)
	}
	if _, err := s.Stat(t.Context(), key); !errors.Is(err, fserror.NotFound) {
		t.Fatalf("Stat: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestTooManyPuts(t *testing.T) {
	s, _, h := harness(t, Config{Dir: t.TempDir(), MaxPuts: 1})
	obj, crc := object(1000, 1)
	sign := func(seq uint64) blockstore.Signed {
		signed, err := s.SignPut(blockstore.Key{Term: 1, Seq: seq}, int64(len(obj)), crc, h.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		return signed
	}
	r, w := io.Pipe()
	first := make(chan int, 1)
	go func() {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPut, sign(1).URL, r)
		req.Header, req.ContentLength = sign(1).Header, int64(len(obj))
		resp, err := h.Client.Do(req)
		if err != nil {
			first <- 0
			return
		}
		resp.Body.Close()
		first <- resp.StatusCode
	}()
	if _, err := w.Write(obj[:1]); err != nil { // the transport reads it
		t.Fatal(err)
	}
	awaitPuts(t, s, 1)
	req, err := sign(2).NewRequest(t.Context(), obj)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := h.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	if _, err := w.Write(obj[1:]); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if status := <-first; status != http.StatusOK {
		t.Fatalf("the first one: %d", status)
	}
	if status, _ := send(t, h.Client, sign(2), obj); status != http.StatusOK {
		t.Fatalf("afterwards: %d", status)
	}
}

// awaitPuts waits until so many PUTs are under way.
func awaitPuts(t *testing.T, s *Store, n int) {
	t.Helper()
	awaitStats(t, s, func(st Stats) bool { return st.PutsInFlight == n })
}

func awaitStats(t *testing.T, s *Store, ok func(Stats) bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for over := time.Now().Add(2 * time.Minute); !ok(s.Stats()); <-tick.C {
		if time.Now().After(over) {
			t.Fatalf("in vain: %+v", s.Stats())
		}
	}
}

// TestHalfRequests: clients that go away at any point leave nothing behind.
func TestHalfRequests(t *testing.T) {
	s, _, h := harness(t, Config{Dir: t.TempDir()})
	obj, crc := object(300_000, 1)
	key := blockstore.Key{Term: 1, Seq: 1}
	signed, err := s.SignPut(key, int64(len(obj)), crc, h.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(s.cfg.BaseURL(), "http://")
	target := strings.TrimPrefix(signed.URL, s.cfg.BaseURL())
	var head strings.Builder
	fmt.Fprintf(&head, "PUT %s HTTP/1.1\r\nHost: x\r\n", target)
	for name, values := range signed.Header {
		fmt.Fprintf(&head, "%s: %s\r\n", name, values[0])
	}
	head.WriteString("\r\n")
	whole := head.String() + string(obj)
	for _, n := range []int{1, 10, head.Len() / 2, head.Len() - 2, head.Len(), head.Len() + 1, len(whole) / 2, len(whole) - 1} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, whole[:n]); err != nil {
			t.Fatal(err)
		}
		// Half a close: the server sees the end, and answers or hangs up.
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err == nil && strings.HasPrefix(string(answer), "HTTP/1.1 2") {
			t.Fatalf("after %d of %d bytes: %q", n, len(whole), answer)
		}
		conn.Close()
		awaitPuts(t, s, 0)
		requireNoTemporaries(t, s)
		if _, err := s.Stat(t.Context(), key); !errors.Is(err, fserror.NotFound) {
			t.Fatalf("after %d of %d bytes: Stat %v", n, len(whole), err)
		}
	}
	// More bytes than announced are another request, and not this block's.
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, whole+"GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(conn)
	for _, want := range []int{http.StatusOK, http.StatusForbidden} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Fatalf("status %d, want %d", resp.StatusCode, want)
		}
	}
}

func FuzzSignedURL(f *testing.F) {
	s := &Store{mac: newSigner(make([]byte, MinSecret), clock.System{})}
	s.cfg.NamespaceID = testID
	path := blockstore.URLPath(testID, blockstore.Key{Term: 1, Seq: 2})
	good := map[string]string{ // method and path to query
		http.MethodPut + path: s.mac.sign(http.MethodPut, path, putTerms(99, 1000, 0xdeadbeef)),
		http.MethodGet + path: s.mac.sign(http.MethodGet, path, getTerms(99)),
	}
	for at, query := range good {
		f.Add(at[3:], query, at[:3] == http.MethodPut)
		f.Add(at[3:], query[:len(query)-1], true)
	}
	f.Add("", "", false)
	f.Add(path+"/..", sigMark, true)
	f.Fuzz(func(t *testing.T, path, query string, put bool) {
		method := http.MethodGet
		if put {
			method = http.MethodPut
		}
		if terms, ok := s.mac.verify(method, path, query); ok != (good[method+path] != "" && good[method+path] == query) {
			t.Fatalf("%s %q %q: accepted %t, terms %q", method, path, query, ok, terms)
		}
		if g, ok := parseTerms(query, put); ok {
			again := getTerms(g.expires.UnixMilli())
			if put {
				again = putTerms(g.expires.UnixMilli(), g.length, g.crc)
			}
			if again != query {
				t.Fatalf("terms %q are read as %+v, which is %q", query, g, again)
			}
		}
	})
}

func FuzzRange(f *testing.F) {
	for _, spec := range []string{"bytes=0-1", "bytes=-5", "bytes=3-", "bytes=9223372036854775807-", "bytes=--", "x"} {
		f.Add(spec, int64(10))
	}
	f.Fuzz(func(t *testing.T, spec string, size int64) {
		size = max(size, 0)
		off, length, ok := parseRange([]string{spec}, size)
		if ok && (off < 0 || length < 1 || off > size-length) {
			t.Fatalf("%q of %d: %d bytes from %d", spec, size, length, off)
		}
	})
}

// TestURLsAndClocks: a URL ends in its time, however the clock is set meanwhile; after a restart
// the time of day decides.
func TestURLsAndClocks(t *testing.T) {
	const day = 24 * time.Hour
	for _, by := range []time.Duration{day, -day} {
		t.Run(by.String(), func(t *testing.T) {
			s, fake, h := harness(t, Config{Dir: t.TempDir()})
			fake.Advance(2 * day)
			obj, crc := object(5000, 1)
			there, next := blockstore.Key{Term: 1, Seq: 1}, uint64(1)
			if err := s.Put(t.Context(), there, obj, crc); err != nil {
				t.Fatal(err)
			}
			sign := func() (get, put blockstore.Signed) {
				t.Helper()
				next++
				get, err := s.SignGet(there, h.Now().Add(time.Minute))
				if err == nil {
					put, err = s.SignPut(blockstore.Key{Term: 1, Seq: next}, int64(len(obj)), crc, h.Now().Add(time.Minute))
				}
				if err != nil {
					t.Fatal(err)
				}
				return get, put
			}
			check := func(what string, get, put blockstore.Signed, good bool) {
				t.Helper()
				want := map[bool][2]int{true: {http.StatusOK, http.StatusOK}, false: {http.StatusForbidden, http.StatusForbidden}}[good]
				gets, _ := send(t, h.Client, get, nil)
				puts, _ := send(t, h.Client, put, obj)
				if got := [2]int{gets, puts}; got != want {
					t.Errorf("%s: GET and PUT answer %v, want %v", what, got, want)
				}
			}
			get, put := sign()
			get2, put2 := sign()
			fake.ShiftWall(by)
			fake.Advance(59 * time.Second)
			check("a URL from before the clock was set, in its time", get, put, true)
			after, afterPut := sign()
			fake.Advance(2 * time.Second)
			check("a URL from before the clock was set, after its time", get2, put2, false)
			check("a URL from after the clock was set, in its time", after, afterPut, true)
			fake.Advance(time.Minute)
			check("a URL from after the clock was set, after its time", after, afterPut, false)

			// As a restart does it. What was signed since the clock was set is by the time before.
			get, put = sign()
			s.mac.began = fake.Wall().Add(-fake.Boot())
			check("a URL from before a restart, after the clock was set", get, put, by < 0)
			get, put = sign()
			check("a URL from after the restart", get, put, true)
		})
	}
}
