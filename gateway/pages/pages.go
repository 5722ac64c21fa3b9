// Package pages serves what operators look at of a gateway: /metrics for Prometheus, and
// /healthz and /readyz for whoever restarts it or sends clients to it.
package pages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	headTime  = 10 * time.Second
	writeTime = 30 * time.Second
	maxHeader = 16 << 10
	readyTime = 5 * time.Second // for a namenode to answer, and how long an answer counts
	maxPages  = 8               // requests for /metrics at once
)

// Calls counts what clients ask a gateway. It is safe for concurrent use.
type Calls struct {
	seconds *prometheus.HistogramVec
	errors  *prometheus.CounterVec
}

// NewCalls returns a Calls whose figures are in the registry.
func NewCalls(r prometheus.Registerer) *Calls {
	c := &Calls{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leasefs_gateway_call_seconds", Help: "How long calls of clients took.", Buckets: prometheus.ExponentialBuckets(0.0005, 4, 9),
		}, []string{"protocol"}),
		errors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "leasefs_gateway_errors_total", Help: "Calls that ended in an error, by its name in Java.",
		}, []string{"protocol", "error"}),
	}
	r.MustRegister(c.seconds, c.errors)
	return c
}

// Of returns what to call after each call of a protocol; class is the error's name, empty
// without one.
func (c *Calls) Of(protocol string) func(class string, took time.Duration) {
	seconds := c.seconds.WithLabelValues(protocol)
	return func(class string, took time.Duration) {
		seconds.Observe(took.Seconds())
		if class != "" {
			c.errors.WithLabelValues(protocol, class).Inc()
		}
	}
}

// Gauge shows a figure that is looked up when somebody asks.
func Gauge(r prometheus.Registerer, name, help string, labels prometheus.Labels, now func() float64) {
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "leasefs_gateway_" + name, Help: help, ConstLabels: labels}, now))
}

// Server serves the pages. It is safe for concurrent use.
type Server struct {
	listener net.Listener
	http     *http.Server
	served   sync.WaitGroup
	log      *slog.Logger
	ask      func(context.Context) error

	mu    sync.Mutex
	asked time.Time
	ready error
}

// Start serves at an address until Close. ask is called for /readyz, at most once in five
// seconds, and says what is in the way of serving clients.
func Start(ctx context.Context, addr string, r *prometheus.Registry, ask func(context.Context) error, log *slog.Logger) (*Server, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, "gateway", "", fmt.Errorf("cannot serve pages at %s: %w; choose another address", addr, err))
	}
	s := &Server{listener: l, log: log, ask: ask}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: maxPages}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.readyz)
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: headTime, ReadTimeout: headTime, WriteTimeout: writeTime, IdleTimeout: writeTime, MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	s.served.Go(func() {
		if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			log.Error("the pages are served no more", "cause", err)
		}
	})
	return s, nil
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock() // one asks at a time
	defer s.mu.Unlock()
	if time.Since(s.asked) > readyTime {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), readyTime)
		defer cancel()
		if s.ready, s.asked = s.ask(ctx), time.Now(); s.ready != nil {
			s.log.Warn("no namenode serves this gateway now", "cause", s.ready)
		}
	}
	if s.ready != nil {
		http.Error(w, "no namenode serves this gateway now; its log tells more", http.StatusServiceUnavailable)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// Addr is where the pages are.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Close ends the Server and waits for it.
func (s *Server) Close(ctx context.Context) error {
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = s.http.Close()
	}
	s.served.Wait()
	return err
}
