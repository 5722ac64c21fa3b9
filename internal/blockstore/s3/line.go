package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasefs/leasefs/internal/clock"
)

// extraTime is what a request with a body gets beyond the time-out of a try.
const extraTime = time.Second // for each MiB

// line is the HTTP client under the library, and under the probe: it ends tries
// that stall, remembers what became of them, and watches the store's clock.
type line struct {
	client  *http.Client
	timeout time.Duration
	clock   clock.Clock
	skew    atomic.Pointer[clock.Skew] // of this machine's clock, as last seen; nil: not known
	counts  counters
	observe func(method string, took time.Duration) // nil: nobody asks
}

func newLine(carrier http.RoundTripper, cfg *Config) *line {
	return &line{timeout: cfg.TryTimeout, clock: cfg.Clock, observe: cfg.Observe, client: &http.Client{
		Transport: carrier,
		// A redirect names another region, or leads to no S3 server: errors.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// tries is what became of the tries of one call.
type tries struct {
	// unsure: one ended without an answer, or with the store's own trouble, so
	// that it may have been carried out.
	unsure bool
}

// watch is an option of a call: its tries are noted in t.
func (t *tries) watch(o *s3.Options) { o.HTTPClient = noted{o.HTTPClient, t} }

// noted is the HTTP client of one call.
type noted struct {
	s3.HTTPClient
	t *tries
}

func (n noted) Do(req *http.Request) (*http.Response, error) {
	resp, err := n.HTTPClient.Do(req)
	if err != nil || resp.StatusCode >= 500 {
		n.t.unsure = true
	}
	return resp, err
}

// stalled is the end of a try in which nothing moved.
type stalled struct{ after time.Duration }

func (e *stalled) Error() string   { return fmt.Sprintf("nothing moved for %s", e.after) }
func (e *stalled) Timeout() bool   { return true }
func (e *stalled) Temporary() bool { return true }

// Do sends one request. The URL, which may be signed, is not in its errors.
func (l *line) Do(req *http.Request) (*http.Response, error) {
	limit := l.timeout + time.Duration(max(req.ContentLength, 0)>>20)*extraTime
	ctx, cancel := context.WithCancelCause(req.Context())
	end := func() { cancel(&stalled{limit}) }
	timer := time.AfterFunc(limit, end)
	answered, began := clock.Compare(l.clock), l.clock.Mono()
	resp, err := l.client.Do(req.WithContext(ctx))
	if l.observe != nil {
		l.observe(strings.ToLower(req.Method), l.clock.Mono()-began)
	}
	if err != nil {
		l.counts.request(req, 0)
		timer.Stop()
		err = why(ctx, err)
		cancel(nil)
		return nil, err
	}
	timer.Stop()
	l.counts.request(req, resp.StatusCode)
	if date, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		skew := answered(date, time.Second)
		l.skew.Store(&skew)
	}
	resp.Body = &watched{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, limit: l.timeout}
	return resp, nil
}

// why prefers what ended a try over how that looked, and leaves the URL out.
func why(ctx context.Context, err error) error {
	var s *stalled
	if errors.As(context.Cause(ctx), &s) {
		return s
	}
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// watched is a body that ends when it stalls. A reader may take its time: only
// the wait for bytes is limited.
type watched struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	limit  time.Duration
	timer  *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, func() { w.cancel(&stalled{w.limit}) })
	} else {
		w.timer.Reset(w.limit)
	}
	n, err := w.ReadCloser.Read(p)
	w.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = why(w.ctx, err)
	}
	return n, err
}

func (w *watched) Close() error {
	err := w.ReadCloser.Close()
	if w.timer != nil {
		w.timer.Stop()
	}
	w.cancel(nil)
	return err
}
