package traces_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/cmd/leasefs/traces"
	"github.com/leasefs/leasefs/internal/tracing"
)

// A collector gets the span of a command and those below it, and whose they are, by the
// time the exporter is closed.
func TestExporter(t *testing.T) {
	got := make(chan *collector.ExportTraceServiceRequest, 10)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		all := new(collector.ExportTraceServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, all)
		}
		if err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
		}
		got <- all
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer s.Close()
	failed := errors.New("no such file")
	err := traces.Command(t.Context(), "cat", s.URL, "v7", func(err error) { t.Error(err) }, func(ctx context.Context) error {
		_, below := tracing.Begin(ctx, "open")
		below.End(nil)
		return failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	close(got)
	names, whose := map[string]string{}, ""
	for all := range got {
		for _, r := range all.GetResourceSpans() {
			whose = r.GetResource().String()
			for _, scope := range r.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					names[s.GetName()] = string(s.GetTraceId())
				}
			}
		}
	}
	if len(names) != 2 || names["leasefs cat"] == "" || names["open"] != names["leasefs cat"] {
		t.Errorf("spans by name, with their traces: %q", names)
	}
	if !strings.Contains(whose, `"leasefs"`) || !strings.Contains(whose, `"v7"`) {
		t.Errorf("they are of %s", whose)
	}
}

// A namenode begins no trace by itself unless the environment says so.
func TestSampler(t *testing.T) {
	for _, c := range []struct {
		env  string
		want bool
	}{{"", false}, {"always_on", true}} {
		t.Run(c.env, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_SAMPLER", c.env)
			if c.env == "" {
				if err := os.Unsetenv("OTEL_TRACES_SAMPLER"); err != nil {
					t.Fatal(err)
				}
			}
			x, err := traces.Open(t.Context(), "namenode", "http://127.0.0.1:1", "v7", true, func(error) {})
			if err != nil {
				t.Fatal(err)
			}
			_, span := tracing.Serve(t.Context(), x.Tracer(), "/leasefs.v1.Namenode/Mkdir")
			if got := span.ID() != ""; got != c.want {
				t.Errorf("recorded: %t", got)
			}
			ctx := tracing.Remote(t.Context(), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
			if _, span := tracing.Serve(ctx, x.Tracer(), "/leasefs.v1.Namenode/Mkdir"); span.ID() != "0af7651916cd43dd8448eb211c80319c" {
				t.Errorf("below a caller's: trace %q", span.ID())
			}
		})
	}
}

// A collector that is not there costs a command a few seconds at most, and is told once.
func TestNoCollector(t *testing.T) {
	var told []error
	tell := func(err error) { told = append(told, err) }
	if err := traces.Command(t.Context(), "cat", "http://127.0.0.1:1", "v7", tell, func(context.Context) error { return nil }); err != nil {
		t.Error(err)
	}
	if len(told) != 1 || !strings.Contains(told[0].Error(), "traces are incomplete") || !strings.Contains(told[0].Error(), "127.0.0.1:1") {
		t.Errorf("told: %v", told)
	}
}

// Without the flag nothing is sent or recorded; a wrong one is refused.
func TestOpen(t *testing.T) {
	x, err := traces.Open(t.Context(), "cat", "", "", false, nil)
	if err != nil || x.Tracer() != nil {
		t.Errorf("without the flag: %v, %v", x, err)
	}
	x.Close()
	if err := traces.Command(t.Context(), "cat", "", "", nil, func(ctx context.Context) error {
		if ctx != t.Context() {
			t.Error("it is recorded")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, at := range []string{"localhost:4318", "grpc://localhost:4317", "http://", "http://user:secret@host", "http://host?token=secret", "http://host:port", "\x00"} {
		if _, err := traces.Open(context.WithoutCancel(t.Context()), "cat", at, "", false, nil); err == nil || !strings.Contains(err.Error(), "--traces") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", at, err)
		}
	}
}
