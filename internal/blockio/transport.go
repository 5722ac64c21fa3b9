package blockio

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/tracing"
)

const (
	// connBuffer is the read and write buffer of an HTTP connection.
	connBuffer = 256 << 10
	// StallTime is in how long a transfer has to move bodyPiece bytes: one that
	// moves less is broken off.
	StallTime = 30 * time.Second
)

// Transport moves objects to and from a block store. It is safe for concurrent
// use.
type Transport struct {
	client *http.Client
	own    *trusting     // nil if the client was given
	stall  time.Duration // at most StallTime; less moves as many bytes less
	memory *memory       // of whole blocks
}

// NewTransport returns a Transport over client, or if that is nil over
// connections of its own, with the TLS configuration (nil: the default), in which
// roots, if it is not nil, says who signs the store. A
// transfer that moves nothing for timeout is broken off, if that is less than
// StallTime.
func NewTransport(client *http.Client, tlsConfig *tls.Config, roots func() *x509.CertPool, timeout time.Duration) *Transport {
	stall := min(StallTime, timeout)
	if client != nil {
		return &Transport{client: client, stall: stall, memory: newMemory()}
	}
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}
	t := &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, network, address)
			if tcp, ok := c.(*net.TCPConn); ok {
				return bodyConn{tcp}, nil
			}
			return c, err
		},
		TLSClientConfig:       tlsConfig.Clone(),
		TLSHandshakeTimeout:   5 * time.Second,
		ResponseHeaderTimeout: time.Minute,
		MaxIdleConnsPerHost:   32,
		IdleConnTimeout:       time.Minute,
		ReadBufferSize:        connBuffer,
		WriteBufferSize:       connBuffer,
		DisableCompression:    true,
	}
	own := &trusting{roots: roots, http: t}
	return &Transport{client: &http.Client{Transport: own}, own: own, stall: stall, memory: newMemory()}
}

// trusting makes connections by the authorities of the moment.
type trusting struct {
	roots func() *x509.CertPool // nil: they stay

	mu   sync.Mutex
	http *http.Transport
}

// RoundTrip implements http.RoundTripper.
func (t *trusting) RoundTrip(r *http.Request) (*http.Response, error) { return t.now().RoundTrip(r) }

func (t *trusting) now() *http.Transport {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.roots == nil {
		return t.http
	}
	if pool := t.roots(); t.http.TLSClientConfig.RootCAs != pool {
		old := t.http
		t.http = old.Clone()
		t.http.TLSClientConfig.RootCAs = pool
		old.CloseIdleConnections()
	}
	return t.http
}

// bodyConn writes a body that is in memory with few system calls, where net/http
// would copy it through 32 KiB pieces.
type bodyConn struct{ *net.TCPConn }

// ReadFrom implements io.ReaderFrom.
func (c bodyConn) ReadFrom(r io.Reader) (int64, error) {
	if l, ok := r.(*io.LimitedReader); ok {
		if b, ok := l.R.(*body); ok && int64(len(b.left)) <= l.N {
			n, err := b.WriteTo(c.TCPConn)
			l.N -= n
			return n, err
		}
	}
	return c.TCPConn.ReadFrom(r)
}

// bodyPiece is how much of a body is written at once, and has to be through
// before the transfer counts as stalled.
const bodyPiece = 256 << 10

// body is a request body of bytes in memory. It tells when some have moved.
type body struct {
	left  []byte
	stall *stall
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
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
func (b *body) WriteTo(w io.Writer) (n int64, err error) {
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
func (*body) Close() error { return nil }

// Close closes the connections that are idle, if they are its own.
func (t *Transport) Close() {
	if t.own != nil {
		t.own.now().CloseIdleConnections()
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

// Status returns the HTTP status with which the store answered, other than
// success, else 0.
func Status(err error) int {
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

// An object shorter or longer than it has to be.
var (
	errShort = errors.New("the block store has fewer bytes than the file's block list says")
	errLong  = errors.New("the block store has more bytes than the file's block list says")
)

// Upload PUTs a whole object. patience is how long the store may take nothing
// of it, or give no answer, if that is less than usual.
func (t *Transport) Upload(ctx context.Context, patience time.Duration, target string, headers map[string]string, object []byte) (err error) {
	ctx, span := tracing.Request(ctx, "PUT block")
	defer func() { span.Bytes(int64(len(object))); span.End(err) }()
	ctx, w := t.watchStall(ctx, min(patience, t.stall+time.Duration(len(object)/(1<<20))*time.Second))
	defer w.stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, target, nil)
	if err != nil {
		return blockstore.WithoutURL(err)
	}
	req.GetBody = func() (io.ReadCloser, error) { return &body{left: object, stall: w}, nil }
	req.Body, _ = req.GetBody()
	req.ContentLength = int64(len(object))
	setHeaders(req, headers)
	below(req, span)
	resp, err := t.client.Do(req)
	if err != nil {
		return w.explain(err)
	}
	defer drainBody(resp.Body)
	if resp.StatusCode/100 != 2 {
		return storeErrorOf(resp)
	}
	return nil
}

// Download GETs len(dst) bytes of an object from off on. whole is the length
// of the object: reading all of it needs no range. patience is how long the
// first of them may take, if that is less than usual.
func (t *Transport) Download(ctx context.Context, patience time.Duration, target string, headers map[string]string, off, whole int64, dst []byte) (err error) {
	ctx, span := tracing.Request(ctx, "GET block")
	defer func() { span.Bytes(int64(len(dst))); span.End(err) }()
	ctx, w := t.watchStall(ctx, min(patience, t.stall))
	defer w.stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return blockstore.WithoutURL(err)
	}
	setHeaders(req, headers)
	below(req, span)
	ranged := off != 0 || int64(len(dst)) != whole
	if ranged {
		req.Header.Set("Range", "bytes="+strconv.FormatInt(off, 10)+"-"+strconv.FormatInt(off+int64(len(dst))-1, 10))
	}
	resp, err := t.client.Do(req)
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

// below tells the store of the span of a request. The header is not signed: no store minds.
func below(req *http.Request, s tracing.Span) {
	if parent := s.Parent(); parent != "" {
		req.Header.Set(tracing.Header, parent)
	}
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
