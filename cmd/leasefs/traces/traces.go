// Package traces is the part of the command line by which spans of OpenTelemetry traces
// leave the process: over OTLP by HTTP, to the collector of --traces. What spans there are
// is the affair of internal/tracing. See docs/adr/0040-traces.md.
package traces

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.37.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/tracing"
)

// patience is how long a collector may take for what is sent to it, and how long a process that
// ends waits for that: OTEL_EXPORTER_OTLP_TIMEOUT, in milliseconds, as OpenTelemetry has it.
func patience() time.Duration {
	if ms, err := strconv.Atoi(os.Getenv("OTEL_EXPORTER_OTLP_TIMEOUT")); err == nil && ms > 0 {
		return time.Duration(ms) * time.Millisecond
	}
	return 3 * time.Second
}

// tellEvery is how often at most the user hears that spans are lost.
const tellEvery = time.Minute

// Flag names the collector. Headers, certificates and the sampler are set in OpenTelemetry's own
// environment variables.
func Flag() cli.Flag {
	return &cli.StringFlag{Name: "traces", Usage: "send spans of OpenTelemetry to the collector at `URL`, such as http://localhost:4318", EnvVars: []string{"LEASEFS_TRACES"}}
}

// Exporter sends spans to a collector. A nil one sends none.
type Exporter struct{ provider *sdk.TracerProvider }

// Open returns the exporter to the collector at a URL, nil if that is empty. It sends nothing yet:
// tell is called when a collector cannot be reached, once a minute at most. Up to 2,048 spans wait
// to be sent; more are dropped.
//
// A namenode (serves) records the calls whose caller does, and no others, unless
// OTEL_TRACES_SAMPLER says what else.
func Open(ctx context.Context, op, at, version string, serves bool, tell func(error)) (*Exporter, error) {
	if at == "" {
		return nil, nil
	}
	u, err := url.Parse(at)
	switch {
	case err == nil && (u.User != nil || u.RawQuery != ""):
		return nil, argv.Usagef(op, "--traces: %s has more than a host and a path: what proves to a collector who sends is in OTEL_EXPORTER_OTLP_HEADERS", u.Host)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, argv.Usagef(op, "--traces is not the URL of a collector of OTLP over HTTP, such as http://localhost:4318") // it may have a secret
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	sometimes := rate.Sometimes{First: 1, Interval: tellEvery}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() {
			tell(fmt.Errorf("traces are incomplete: check that a collector of OTLP over HTTP answers at %s: %w", u.Host, err))
		})
	}))
	out, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(patience()),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: patience() / 10, MaxInterval: patience(), MaxElapsedTime: patience()}))
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	what, err := resource.Merge(resource.Default(), resource.NewSchemaless(semconv.ServiceName("leasefs"), semconv.ServiceVersion(version)))
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	opts := []sdk.TracerProviderOption{sdk.WithResource(what), sdk.WithBatcher(out)}
	if _, said := os.LookupEnv("OTEL_TRACES_SAMPLER"); serves && !said {
		opts = append(opts, sdk.WithSampler(sdk.ParentBased(sdk.NeverSample())))
	}
	return &Exporter{sdk.NewTracerProvider(opts...)}, nil
}

// Tracer begins spans, nil if x is.
func (x *Exporter) Tracer() trace.Tracer {
	if x == nil {
		return nil
	}
	return x.provider.Tracer(tracing.Scope)
}

// Command runs a command and sends its span, and those below it, to the collector at a URL. If
// that is empty, it only runs the command.
func Command(ctx context.Context, op, at, version string, tell func(error), run func(context.Context) error) error {
	x, err := Open(ctx, op, at, version, false, tell)
	if err != nil {
		return err
	}
	defer x.Close()
	ctx, span := tracing.Root(ctx, x.Tracer(), "leasefs "+op)
	err = run(ctx)
	span.End(err)
	return err
}

// Close sends what is left, for patience at most.
func (x *Exporter) Close() {
	if x == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	if err := x.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}
