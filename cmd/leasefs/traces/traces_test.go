package traces_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/cmd/leasefs/traces"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/test/env/collector"
)

// A collector gets the span of a command and those below it, and whose they are, by the
// time the exporter is closed.
func TestExporter(t *testing.T) {
	c := collector.Start(t)
	failed := errors.New("no such file")
	err := traces.Command(t.Context(), "cat", c.URL, "v7", func(err error) { t.Error(err) }, func(ctx context.Context) error {
		_, below := tracing.Begin(ctx, "open")
		below.End(nil)
		return failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
	seen, whose := c.Seen()
	if len(seen) != 2 || len(seen["open"]) != 1 || !maps.Equal(seen["open"], seen["leasefs cat"]) {
		t.Errorf("traces by the names of spans: %v", seen)
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
	if len(told) != 1 || !strings.Contains(told[0].Error(), "check that a collector") || !strings.Contains(told[0].Error(), "127.0.0.1:1") {
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
	for _, at := range []string{"localhost:4318", "grpc://localhost:4317", "http://", "http://user:secret@host", "http://host?token=secret", "http://user:secret@host:port", "user:secret@host", "\x00"} {
		if _, err := traces.Open(context.WithoutCancel(t.Context()), "cat", at, "", false, nil); err == nil || !strings.Contains(err.Error(), "--traces") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", at, err)
		}
	}
}
