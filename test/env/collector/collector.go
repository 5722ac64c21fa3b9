// Package collector is what gets the spans of OpenTelemetry in tests: it speaks OTLP over HTTP,
// with the protocol's own messages.
package collector

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector keeps what it is sent. It is for several goroutines at a time.
type Collector struct {
	URL string

	mu     sync.Mutex
	traces map[string]map[string]bool
	whose  string
}

// Start starts a collector that ends with the test, which fails if it is sent anything else than spans.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{traces: map[string]map[string]bool{}}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		all := new(otlp.ExportTraceServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, all)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("the collector was sent %s: %v", r.URL, err)
		}
		c.keep(all)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	t.Cleanup(s.Close)
	c.URL = s.URL
	return c
}

func (c *Collector) keep(all *otlp.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range all.GetResourceSpans() {
		c.whose = r.GetResource().String()
		for _, scope := range r.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				if c.traces[s.GetName()] == nil {
					c.traces[s.GetName()] = map[string]bool{}
				}
				c.traces[s.GetName()][string(s.GetTraceId())] = true
			}
		}
	}
}

// Seen returns the ids of the traces in which there are spans, by their names, and what was said
// last of the process that sent some. Nothing may be sent any more.
func (c *Collector) Seen() (traces map[string]map[string]bool, whose string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.traces, c.whose
}
