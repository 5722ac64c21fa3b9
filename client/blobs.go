package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	defaultBlockSize = blockstore.DefaultBlockSize
	// blobBuffer is the read and write buffer of an HTTP connection.
	blobBuffer = 256 << 10
	// stallTime is in how long a transfer has to move bodyPiece bytes: one that
	// moves less is broken off and tried again.
	stallTime = 30 * time.Second
)

// blobs moves blocks to and from the store, by signed URLs.
type blobs struct {
	client *http.Client
	own    *http.Transport // nil if the client was given
	stall  time.Duration   // at most stallTime; less moves as many bytes less

	pools sync.Map // capacity → *sync.Pool of *buffer
}

// buffer is one block's memory.
type buffer struct{ b []byte }

func newBlobs(cfg *Config) *blobs {
	stall := min(stallTime, cfg.Timeout)
	if cfg.HTTPClient != nil {
		return &blobs{client: cfg.HTTPClient, stall: stall}
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok {
				return blobConn{tcp}, nil
			}
			return c, err
		},
		TLSClientConfig:       cfg.TLS.Clone(),
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       time.Minute,
		ReadBufferSize:        blobBuffer,
		WriteBufferSize:       blobBuffer,
		DisableCompression:    true,
	}
	return &blobs{client: &http.Client{Transport: t}, own: t, stall: stall}
}

// blobConn writes a body that is in memory with few system calls, where net/http
// would copy it through 32 KiB pieces.
type blobConn struct{ *net.TCPConn }

// ReadFrom implements io.ReaderFrom.
func (c blobConn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if body, ok := l.R.(*blobBody); ok && int64(len(body.left)) <= l.N {
			n, err := body.WriteTo(c.TCPConn)
			l.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// bodyPiece is how much of a body is written at once, and has to be through
// before the transfer counts as stalled.
const bodyPiece = 256 << 10

// blobBody is a request body of bytes in memory. It tells when some have moved.
type blobBody struct {
	left  []byte
	stall *stall
}

// Read implements io.Reader.
func (b *blobBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		b.stall.restart() // all is on its way: the store has as long to answer
		return 0, io.EOF
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	b.stall.moved(n)
	return n, nil
}

// WriteTo implements io.WriterTo.
func (b *blobBody) WriteTo(w io.Writer) (n int64, err error) {
	for len(b.left) > 0 {
		k, err := w.Write(b.left[:min(bodyPiece, len(b.left))])
		n += int64(k)
		b.left = b.left[k:]
		if err != nil {
			return n, err
		}
		b.stall.moved(k)
	}
	b.stall.restart()
	return n, nil
}

// Close implements io.Closer.
func (*blobBody) Close() error { return nil }

func (b *blobs) close() {
	if b.own != nil {
		b.own.CloseIdleConnections()
	}
}

// get takes a buffer for n bytes; put gives it back. The content of a buffer
// that was given back is gone.
func (b *blobs) get(n int64) *buffer {
	capacity := roundCapacity(n)
	p, ok := b.pools.Load(capacity)
	if !ok {
		p, _ = b.pools.LoadOrStore(capacity, new(sync.Pool))
	}
	if buf, ok := p.(*sync.Pool).Get().(*buffer); ok {
		buf.b = buf.b[:0]
		return buf
	}
	return &buffer{b: make([]byte, 0, capacity)}
}

// roundCapacity rounds up to one of few sizes, so that few are pooled: to the
// stored length of a block of 128 KiB, or of the next one of twice or one and a
// half times as much.
func roundCapacity(n int64) int64 {
	for data := int64(2 * blockstore.ChunkSize); ; data *= 2 {
		for _, c := range []int64{blockstore.StoredLength(data), blockstore.StoredLength(data + data/2)} {
			if n <= c {
				return c
			}
		}
	}
}

func (b *blobs) put(buf *buffer) {
	if p, ok := b.pools.Load(int64(cap(buf.b))); ok {
		p.(*sync.Pool).Put(buf)
	}
}

// storeError is a store's answer other than success.
type storeError struct {
	status  int
	kind    string // of our own store, else empty
	message string
}

func (e *storeError) Error() string {
	s := fmt.Sprintf("the block store answered %d %s", e.status, http.StatusText(e.status))
	if e.message != "" {
		s += ": " + e.message
	}
	return s
}

// statusOf returns the HTTP status of a storeError, else 0.
func statusOf(err error) int {
	var e *storeError
	if errors.As(err, &e) {
		return e.status
	}
	return 0
}

// full reports whether the store has no room.
func full(err error) bool {
	var e *storeError
	return errors.As(err, &e) && (e.status == http.StatusInsufficientStorage || e.kind == fserror.NoSpace.String())
}

// A body shorter or longer than it has to be.
var (
	errShort = errors.New("the block store has fewer bytes than the file's block list says")
	errLong  = errors.New("the block store has more bytes than the file's block list says")
)

// upload PUTs a whole object. patience is how long the store may take nothing
// of it, or give no answer, if that is less than usual.
func (b *blobs) upload(ctx context.Context, patience time.Duration, target string, headers map[string]string, object []byte) error {
	ctx, w := b.watchStall(ctx, min(patience, b.stall+time.Duration(len(object)/(1<<20))*time.Second))
	defer w.stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, nil)
	if err != nil {
		return blockstore.WithoutURL(err)
	}
	body := func() (io.ReadCloser, error) {
		return &blobBody{left: object, stall: w}, nil
	}
	req.Body, _ = body()
	req.GetBody = body
	req.ContentLength = int64(len(object))
	setHeaders(req, headers)
	resp, err := b.client.Do(req)
	if err != nil {
		return w.explain(err)
	}
	defer drainBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return storeErrorOf(resp)
	}
	return nil
}

// download GETs len(dst) bytes of an object from off on. whole is the length
// of the object: reading all of it needs no range. patience is how long the
// first of them may take, if that is less than usual.
func (b *blobs) download(ctx context.Context, patience time.Duration, target string, headers map[string]string, off, whole int64, dst []byte) error {
	ctx, w := b.watchStall(ctx, min(patience, b.stall))
	defer w.stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return blockstore.WithoutURL(err)
	}
	setHeaders(req, headers)
	ranged := off != 0 || int64(len(dst)) != whole
	if ranged {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+int64(len(dst))-1, 10))
	}
	resp, err := b.client.Do(req)
	if err != nil {
		return w.explain(err)
	}
	defer drainBody(resp.Body)
	switch {
	case resp.StatusCode == http.StatusRequestedRangeNotSatisfiable:
		return errShort
	case ranged && resp.StatusCode == http.StatusOK:
		return &storeError{status: resp.StatusCode, message: "it ignores ranges"}
	case resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusPartialContent:
		return storeErrorOf(resp)
	case !ranged && resp.ContentLength >= 0 && resp.ContentLength < int64(len(dst)):
		return errShort
	case !ranged && resp.ContentLength > int64(len(dst)):
		return errLong
	}
	for n := 0; n < len(dst); {
		k, err := resp.Body.Read(dst[n:])
		n += k
		w.moved(k)
		if n < len(dst) && err != nil {
			if errors.Is(err, io.EOF) {
				return errShort
			}
			return w.explain(err)
		}
	}
	return nil
}

// setHeaders sets the headers that the signature covers.
func setHeaders(req *http.Request, headers map[string]string) {
	for k, v := range headers {
		switch {
		case strings.EqualFold(k, "Host"):
			req.Host = v
		case strings.EqualFold(k, "Content-Length"): // from ContentLength
		default:
			req.Header.Set(k, v)
		}
	}
}

// drainBody makes the connection usable again, if that costs little.
func drainBody(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 4<<10) // only for the connection's sake
	_ = body.Close()
}

func storeErrorOf(resp *http.Response) error {
	e := &storeError{status: resp.StatusCode}
	text, err := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	if err != nil {
		return e
	}
	var ours blockstore.ErrorBody
	if json.Unmarshal(text, &ours) == nil && ours.Error.Kind != "" {
		e.kind, e.message = ours.Error.Kind, ours.Error.Message
		return e
	}
	// S3 answers XML; its code and message are enough for a person.
	e.message = strings.TrimSpace(cut(string(text), "<Code>", "</Code>") + " " + cut(string(text), "<Message>", "</Message>"))
	return e
}

func cut(s, from, to string) string {
	_, s, ok := strings.Cut(s, from)
	if !ok {
		return ""
	}
	s, _, _ = strings.Cut(s, to)
	return s
}

// stall ends a transfer that moves too little.
type stall struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer
	limit  time.Duration
	need   int64        // bytes to be moved within limit
	got    atomic.Int64 // bytes since the time began
	time   atomic.Int64 // until the transfer is broken off
}

// watchStall ends the transfer unless its first bytes move within first, and
// more of them all the time.
func (b *blobs) watchStall(ctx context.Context, first time.Duration) (context.Context, *stall) {
	ctx, cancel := context.WithCancelCause(ctx)
	limit := max(first, b.stall)
	w := &stall{ctx: ctx, limit: limit, need: int64(bodyPiece * limit / stallTime), cancel: func() { cancel(nil) }}
	w.time.Store(int64(first))
	w.timer = time.AfterFunc(first, func() {
		cancel(fmt.Errorf("the block store moved %d bytes in %s, which is too slow", w.got.Load(), fserror.Round(time.Duration(w.time.Load()))))
	})
	return ctx, w
}

// moved counts what has moved; when it is enough, the time begins again.
func (w *stall) moved(n int) {
	if w.got.Add(int64(n)) >= w.need {
		w.restart()
	}
}

func (w *stall) restart() {
	w.got.Store(0)
	w.time.Store(int64(w.limit))
	w.timer.Reset(w.limit)
}

func (w *stall) stop() {
	w.timer.Stop()
	w.cancel()
}

// explain prefers what ended the transfer over how that looked.
func (w *stall) explain(err error) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	return blockstore.WithoutURL(err)
}
