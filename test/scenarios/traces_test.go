package scenarios_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// TestOneTraceFromProgramToDisk: a program's call is one trace with what the namenode, its
// journal and its block store do for it, over the stream of calls, too. No span has a path, and
// a program without a span begins none in the namenode that it did not ask for.
func TestOneTraceFromProgramToDisk(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewSpanRecorder()
	p := sdk.NewTracerProvider(sdk.WithSampler(sdk.ParentBased(sdk.NeverSample(), sdk.WithRemoteParentSampled(sdk.AlwaysSample()))), sdk.WithSpanProcessor(seen))
	always := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen))
	n := env.Start(t, func(c *namenode.Config) { c.Tracer = p.Tracer(tracing.Scope) })
	fs, err := client.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	secret := bytes.Repeat([]byte("secret "), 300<<10) // two MiB: a block
	work := func(ctx context.Context, path string) {
		t.Helper()
		if err := fs.WriteFile(ctx, path, secret); err != nil {
			t.Fatal(err)
		}
		got, err := fs.ReadFile(ctx, path)
		if err != nil || !bytes.Equal(got, secret) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
		if err := fs.Mkdir(ctx, path+"-dir", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	work(t.Context(), "/nobody-asks")
	if all := seen.Ended(); len(all) != 0 {
		t.Fatalf("%d spans that nobody asked for, such as %s", len(all), all[0].Name())
	}
	if strings.Contains(openMetrics(t, n), "trace_id") {
		t.Error("an example of a trace that nobody asked for")
	}
	for i := range 20 { // more than one call of each kind: the first may go alone, the others over the stream
		ctx, root := always.Tracer("program").Start(t.Context(), "program")
		work(ctx, "/hidden"+string(rune('a'+i)))
		root.End()
	}
	_, failing := always.Tracer("program").Start(t.Context(), "fails")
	if err := fs.Mkdir(trace.ContextWithSpan(t.Context(), failing), "/hiddena-dir/x/y", 0o755); err == nil {
		t.Fatal("no error")
	}
	failing.End()

	// An answer may come before its span has ended in the namenode.
	want := []string{"program", "leasefs.v1.Namenode/Create", "change", "journal", "PUT block", "store put", "GET block", "store get", "mkdir"}
	missing := want
	defer func() {
		if len(missing) > 0 {
			t.Errorf("no span is called %q", missing)
		}
	}()
	env.Eventually(t, "all spans have ended", func() bool {
		names := map[string]bool{}
		for _, s := range seen.Ended() {
			names[s.Name()] = true
		}
		missing = slices.DeleteFunc(slices.Clone(want), func(name string) bool { return names[name] })
		return len(missing) == 0
	})
	byID := map[trace.SpanID]sdk.ReadOnlySpan{}
	for _, s := range seen.Ended() {
		byID[s.SpanContext().SpanID()] = s
	}
	// chain is a span's name and those above it.
	chain := func(s sdk.ReadOnlySpan) (names []string) {
		for ; s != nil; s = byID[s.Parent().SpanID()] {
			names = append(names, s.Name())
		}
		return names
	}
	chains := map[string]bool{}
	for _, s := range seen.Ended() {
		for _, a := range s.Attributes() {
			if v := a.Value.String(); strings.Contains(v, "hidden") || strings.Contains(v, "secret") || strings.Contains(v, "http") {
				t.Errorf("%s tells %s: %s", s.Name(), a.Key, v)
			}
		}
		if strings.Contains(s.Status().Description, "hidden") {
			t.Errorf("%s tells %q", s.Name(), s.Status().Description)
		}
		up := chain(s)
		if last := up[len(up)-1]; last != "program" && last != "fails" {
			t.Errorf("%v does not come from the program", up)
		}
		chains[strings.Join(up, " < ")] = true
	}
	for _, want := range []string{
		"journal < leasefs.v1.Namenode/Mkdir < leasefs.v1.Namenode/Mkdir < mkdir < program",
		"store put < PUT block < program",
		"store get < GET block < program",
	} {
		if !chains[want] {
			t.Errorf("no chain is %s, but %q", want, slices.Sorted(maps.Keys(chains)))
		}
	}

	if page := openMetrics(t, n); !strings.Contains(page, `# {trace_id="`) {
		t.Error("no example of a trace in the metrics")
	}
}

// openMetrics is a namenode's /metrics for a reader who asks for OpenMetrics, which can have exemplars.
func openMetrics(t *testing.T, n *env.Namenode) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.HTTPAddr()+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	page, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(page, []byte("leasefs_call_seconds_bucket{")) {
		t.Fatalf("the metrics have no times of calls (%v):\n%s", err, page)
	}
	return string(page)
}

// TestNoExemplarsWithoutTraces: the metrics of a namenode without traces have no exemplars and are no
// OpenMetrics, also when the caller records its own trace.
func TestNoExemplarsWithoutTraces(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	fs, err := client.New(t.Context(), client.Config{Namenodes: []string{n.Addr()}, User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = fs.Close() })
	ctx, root := sdk.NewTracerProvider().Tracer("program").Start(t.Context(), "program")
	defer root.End()
	if err := fs.Mkdir(ctx, "/d", 0o755); err != nil {
		t.Fatal(err)
	}
	switch page := openMetrics(t, n); {
	case strings.Contains(page, "trace_id"):
		t.Error("the metrics have exemplars")
	case strings.HasSuffix(page, "# EOF\n"):
		t.Error("the metrics are OpenMetrics, which a reader takes for a promise of exemplars")
	}
}
