package serve

import (
	"cmp"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/leasefs/leasefs/internal/fserror"
)

// calls is what is counted of calls.
type calls struct {
	latency *prometheus.HistogramVec
	errors  *prometheus.CounterVec
	shed    prometheus.Counter
	delayed prometheus.Counter
	panics  prometheus.Counter
}

func newCalls() calls {
	return calls{
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "leasefs_call_seconds", Help: "Time of a call in the namenode, waiting for the disk included.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16),
		}, []string{"method"}),
		errors:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "leasefs_call_errors_total", Help: "Calls answered with an error, by its kind."}, []string{"method", "kind"}),
		shed:    prometheus.NewCounter(prometheus.CounterOpts{Name: "leasefs_calls_shed_total", Help: "Calls told to retry because too many were under way."}),
		delayed: prometheus.NewCounter(prometheus.CounterOpts{Name: "leasefs_calls_delayed_seconds_total", Help: "How long calls have waited because their callers make more of them than they may."}),
		panics:  prometheus.NewCounter(prometheus.CounterOpts{Name: "leasefs_panics_total", Help: "Calls that ended in a fault of the program; always worth a report."}),
	}
}

// observe counts a call that was answered. traceID, if it is not empty, makes it an example of
// how long calls take, which leads from a dashboard to a trace.
func (c *calls) observe(method string, took time.Duration, err error, traceID string) {
	h := c.latency.WithLabelValues(opName(method))
	if e, ok := h.(prometheus.ExemplarObserver); ok && traceID != "" {
		e.ObserveWithExemplar(took.Seconds(), prometheus.Labels{"trace_id": traceID})
	} else {
		h.Observe(took.Seconds())
	}
	c.failed(method, err)
}

// failed counts a call or stream that ended with an error; nil is none.
func (c *calls) failed(method string, err error) {
	if err != nil {
		c.errors.WithLabelValues(opName(method), fserror.KindOf(err).String()).Inc()
	}
}

// opNames are methods' names on the command line, where they are others.
var opNames = map[string]string{
	"Delete": "rm", "Rename": "mv", "GetFile": "open", "List": "ls", "Summary": "du", "AppendTail": "flush",
	"AllocateBlock": "write", "Commit": "write", "CloseAbandoned": "close", "CancelOpen": "close", "RenewLease": "renew", "Collect": "gc", "ResolveStore": "resolve",
}

// opName is a method's name as the command line calls the operation.
func opName(method string) string {
	if op, known := opsOf.Load(method); known {
		return op.(string) //nolint:errcheck,forcetypeassert // of no other type
	}
	name := path.Base(method)
	op := cmp.Or(opNames[name], strings.ToLower(name))
	opsOf.Store(method, op)
	return op
}

// opsOf are the names of the methods that were called: of those that there are.
var opsOf sync.Map
