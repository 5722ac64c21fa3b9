package local

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/internal/vfs"
)

// refusal is an answer that is not what was asked for.
type refusal struct {
	status int
	reason Reason
	err    error // an *fserror.Error
}

func refuse(status int, reason Reason, kind fserror.Kind, format string, args ...any) *refusal {
	return &refusal{status, reason, fserror.New(kind, "", "", format, args...)}
}

// refusalOf is the one table from the store's errors to HTTP.
func refusalOf(err error) *refusal {
	switch fserror.KindOf(err) {
	case fserror.Damaged:
		return &refusal{http.StatusBadRequest, ReasonChecksum, err}
	case fserror.Permission:
		return &refusal{http.StatusForbidden, ReasonExpired, err}
	case fserror.NotFound:
		return &refusal{http.StatusNotFound, ReasonNotFound, err}
	case fserror.Exists:
		return &refusal{http.StatusPreconditionFailed, ReasonExists, err}
	case fserror.TooLarge:
		return &refusal{http.StatusRequestEntityTooLarge, ReasonTooLarge, err}
	case fserror.NoSpace:
		return &refusal{http.StatusInsufficientStorage, ReasonNoSpace, err}
	case fserror.Closed:
		return &refusal{http.StatusServiceUnavailable, ReasonOther, err}
	case fserror.Retry:
		return &refusal{http.StatusServiceUnavailable, ReasonBusy, err}
	case fserror.Canceled:
		return &refusal{http.StatusBadRequest, ReasonBrokenOff, err}
	}
	return &refusal{http.StatusInternalServerError, ReasonDisk, err}
}

func (s *Store) serve(w http.ResponseWriter, r *http.Request) {
	var no *refusal
	switch r.Method {
	case http.MethodPut:
		no = s.servePut(w, r)
	case http.MethodGet, http.MethodHead:
		no = s.serveGet(w, r)
	default:
		w.Header().Set("Allow", "PUT, GET, HEAD")
		no = refuse(http.StatusMethodNotAllowed, ReasonOther, fserror.Unsupported, "method %.16q: PUT, GET and HEAD are served", r.Method)
	}
	if no != nil {
		s.answer(w, r, no)
	}
}

// answer sends a refusal: one line of JSON.
func (s *Store) answer(w http.ResponseWriter, r *http.Request, no *refusal) {
	s.stats.reject(no.reason)
	if no.status == http.StatusInternalServerError {
		s.cfg.Logger.Error("block request failed", "method", r.Method, "path", r.URL.Path, "err", no.err)
	}
	var body blockstore.ErrorBody
	body.Error.Kind = fserror.KindOf(no.err).String()
	body.Error.Message = no.err.Error()
	line, err := json.Marshal(body)
	if err != nil { // two strings: cannot be
		line = []byte(`{"error":{"kind":"INTERNAL","message":""}}`)
	}
	line = append(line, '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(line)))
	if no.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(no.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(line) // a client that is gone needs no answer
	}
}

// authorize returns the block and the terms that the request's URL was signed for.
func (s *Store) authorize(r *http.Request) (blockstore.Key, grant, *refusal) {
	put := r.Method == http.MethodPut
	method := http.MethodGet // HEAD is allowed to who may GET
	if put {
		method = http.MethodPut
	}
	bad := func(what string) (blockstore.Key, grant, *refusal) {
		return blockstore.Key{}, grant{}, refuse(http.StatusForbidden, ReasonSignature, fserror.Permission, "%s", what)
	}
	// A path that needs unescaping was not made by URLPath.
	if r.URL.RawPath != "" {
		return bad("the URL was not signed by this store")
	}
	namespace, key, err := blockstore.ParseURLPath(r.URL.Path)
	if err != nil || namespace != s.cfg.NamespaceID {
		return bad("the URL was not signed by this store")
	}
	terms, ok := s.mac.verify(method, r.URL.Path, r.URL.RawQuery)
	if !ok {
		return bad(fmt.Sprintf("block %s: the signature does not fit %s and this URL", key, r.Method))
	}
	g, ok := parseTerms(terms, put)
	if !ok {
		return bad(fmt.Sprintf("block %s: signed terms that this version does not know", key))
	}
	if s.mac.now().After(g.expires) {
		return blockstore.Key{}, grant{}, &refusal{http.StatusForbidden, ReasonExpired, expired(key, g.expires)}
	}
	return key, g, nil
}

// begin begins to measure a request that is allowed, and its span: who has no good URL makes
// none. The func that it returns ends that.
func (s *Store) begin(r *http.Request, op string, length int64) (end func(no **refusal)) {
	began := s.cfg.Clock.Mono()
	observe := func() {
		if s.cfg.Observe != nil {
			s.cfg.Observe(op, s.cfg.Clock.Mono()-began)
		}
	}
	if s.cfg.Tracer == nil {
		return func(**refusal) { observe() }
	}
	_, span := tracing.Serve(tracing.Remote(r.Context(), r.Header.Get(tracing.Header)), s.cfg.Tracer, "store "+op)
	span.Bytes(length)
	return func(no **refusal) {
		observe()
		if *no != nil {
			span.End((*no).err)
			return
		}
		span.End(nil)
	}
}

func (s *Store) servePut(w http.ResponseWriter, r *http.Request) (no *refusal) {
	key, g, no := s.authorize(r)
	if no != nil {
		return no
	}
	defer s.begin(r, "put", g.length)(&no)
	if no := checkPutHeaders(r, key, g); no != nil {
		return no
	}
	if err := blockstore.CheckLength(key, g.length, s.cfg.MaxObject); err != nil {
		return refusalOf(err)
	}
	rc := http.NewResponseController(w)
	// Without a deadline (not a connection: a probe) there is nobody to stall.
	by := func(d time.Duration) { _ = rc.SetReadDeadline(time.Now().Add(d)) }
	// Who sends headers only takes none of the places.
	var first [1]byte
	by(blockstore.PutFirst)
	if _, err := io.ReadFull(r.Body, first[:]); err != nil {
		return refusalOf(brokenOff(called(key), 0, g.length, err))
	}
	place, ok := s.slots.take(key, sourceOf(r.RemoteAddr), func() { by(0) })
	if !ok {
		return busy(key, s.slots.most)
	}
	if !s.slots.enter(place) {
		s.slots.give(place)
		return busy(key, s.slots.most)
	}
	defer s.slots.leave()
	err := s.put(r.Context(), key, source{
		body: counted{io.MultiReader(bytes.NewReader(first[:]), r.Body), place}, length: g.length, crc: g.crc, expires: g.expires,
		waiting: func() { s.slots.stay(place, func() { by(blockstore.PutStall) }) },
	})
	if cut := s.slots.give(place); cut && err != nil {
		return busy(key, s.slots.most)
	}
	if err != nil {
		return refusalOf(err)
	}
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusOK)
	return nil
}

func busy(key blockstore.Key, most int) *refusal {
	return refuse(http.StatusServiceUnavailable, ReasonBusy, fserror.Retry, "block %s: %d PUTs are under way, try again", key, most)
}

// checkPutHeaders holds the request's headers against what was signed.
func checkPutHeaders(r *http.Request, key blockstore.Key, g grant) *refusal {
	forbid := func(format string, args ...any) *refusal {
		return refuse(http.StatusForbidden, ReasonHeaders, fserror.Permission, "block "+key.String()+": "+format, args...)
	}
	if r.ContentLength <= 0 {
		return refuse(http.StatusLengthRequired, ReasonHeaders, fserror.InvalidArgument, "block %s: Content-Length is missing", key)
	}
	if r.ContentLength != g.length {
		return forbid("Content-Length is %d, %d was signed", r.ContentLength, g.length)
	}
	if v := r.Header[blockstore.HeaderIfNoneMatch]; len(v) != 1 || v[0] != blockstore.IfNoneMatchAny {
		return forbid("the signed header %s: %s is missing", blockstore.HeaderIfNoneMatch, blockstore.IfNoneMatchAny)
	}
	v := r.Header[blockstore.HeaderChecksum]
	if len(v) != 1 {
		return forbid("the signed header %s is missing", blockstore.HeaderChecksum)
	}
	if crc, ok := blockstore.DecodeChecksum(v[0]); !ok || crc != g.crc {
		return forbid("%s is %.16q, %q was signed", blockstore.HeaderChecksum, v[0], blockstore.EncodeChecksum(g.crc))
	}
	return nil
}

func (s *Store) serveGet(w http.ResponseWriter, r *http.Request) (no *refusal) {
	key, _, no := s.authorize(r)
	if no != nil {
		return no
	}
	defer s.begin(r, "get", 0)(&no)
	if err := s.gate.enter(r.Context(), "get", called(key)); err != nil {
		return refusalOf(err)
	}
	f, size, err := s.open(called(key), s.blockPath(key))
	s.gate.leave()
	if err != nil {
		return refusalOf(err)
	}
	defer s.gate.transfer(r.Context(), func() { // one that has closed its half only may still read for a while
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(blockstore.PutStall)) // as of a connection that has ended
	})()
	defer func() { _ = f.Close() }()
	h := w.Header()
	h.Set("Accept-Ranges", "bytes")
	h.Set("Content-Type", "application/octet-stream")
	if r.Method == http.MethodHead {
		h.Set("Content-Length", strconv.FormatInt(size, 10))
		w.WriteHeader(http.StatusOK)
		s.stats.heads.Add(1)
		return nil
	}
	off, length, status := int64(0), size, http.StatusOK
	if v := r.Header.Values("Range"); len(v) > 0 {
		var ok bool
		if off, length, ok = parseRange(v, size); !ok {
			h.Set("Content-Range", "bytes */"+strconv.FormatInt(size, 10))
			return refuse(http.StatusRequestedRangeNotSatisfiable, ReasonRange, fserror.InvalidArgument,
				"block %s has %d bytes: range %.64q is none of them, or not of the form bytes=a-b", key, size, strings.Join(v, ","))
		}
		status = http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", off, off+length-1, size))
	}
	h.Set("Content-Length", strconv.FormatInt(length, 10))
	src, err := readerFrom(f, off, length)
	if err != nil {
		h.Del("Content-Range")
		return refusalOf(diskError("get", called(key), err))
	}
	w.WriteHeader(status)
	// Too few bytes (the client left, or the disk failed) end the connection:
	// net/http does so when Content-Length is not reached.
	n, err := io.CopyN(w, src, length)
	s.stats.gets.Add(1)
	s.stats.getBytes.Add(uint64(max(n, 0)))
	if err != nil && r.Context().Err() == nil {
		s.cfg.Logger.Warn("block read broken off", "block", key.String(), "sent", n, "of", length, "err", err)
	}
	return nil
}

// readerFrom positions f. A file of the machine is returned as it is, which lets
// net/http send it with sendfile(2).
func readerFrom(f vfs.File, off, length int64) (io.Reader, error) {
	if seeker, ok := f.(io.Seeker); ok {
		_, err := seeker.Seek(off, io.SeekStart)
		return f, err
	}
	return io.NewSectionReader(f, off, length), nil
}

// parseRange reads one range of the form bytes=a-b, bytes=a- or bytes=-n and
// cuts it to size. Several ranges are not served.
func parseRange(values []string, size int64) (off, length int64, ok bool) {
	if len(values) != 1 {
		return 0, 0, false
	}
	spec, ok := strings.CutPrefix(values[0], "bytes=")
	if !ok {
		return 0, 0, false
	}
	first, last, ok := strings.Cut(spec, "-")
	if !ok {
		return 0, 0, false
	}
	if first == "" { // the last n bytes
		n, ok := parseDecimal(last)
		n = min(n, size)
		return size - n, n, ok && n > 0
	}
	off, ok = parseDecimal(first)
	if !ok || off >= size {
		return 0, 0, false
	}
	if last == "" {
		return off, size - off, true
	}
	end, ok := parseDecimal(last)
	if !ok || end < off {
		return 0, 0, false
	}
	return off, min(end, size-1) - off + 1, true
}

// parseDecimal reads digits only: no sign, no space.
func parseDecimal(s string) (int64, bool) {
	v, err := strconv.ParseUint(s, 10, 63)
	return int64(v), err == nil
}

// roundTripper lets a client call the handler without a network.
type roundTripper struct{ h http.Handler }

// RoundTrip answers the request as a server would, from memory.
func (t roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	r := req.Clone(req.Context())
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := &recorder{header: http.Header{}, status: http.StatusOK}
	t.h.ServeHTTP(w, r)
	return &http.Response{
		StatusCode: w.status, Header: w.header, Request: req,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()),
	}, nil
}

// recorder is an http.ResponseWriter in memory.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *recorder) Header() http.Header         { return w.header }
func (w *recorder) WriteHeader(status int)      { w.status = status }
func (w *recorder) Write(p []byte) (int, error) { return w.body.Write(p) }
