package e2e_test

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
)

// TestTraces: a command that is traced is one trace with what the namenode did for it; one
// that is not leaves none.
func TestTraces(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 2*time.Minute)
	var mu sync.Mutex
	seen := map[string]map[string]bool{} // traces by the names of their spans
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		all := new(collector.ExportTraceServiceRequest)
		if err == nil {
			err = proto.Unmarshal(body, all)
		}
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, r := range all.GetResourceSpans() {
			for _, scope := range r.GetScopeSpans() {
				for _, s := range scope.GetSpans() {
					if seen[s.GetName()] == nil {
						seen[s.GetName()] = map[string]bool{}
					}
					seen[s.GetName()][string(s.GetTraceId())] = true
				}
			}
		}
	}))
	defer s.Close()
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"), "--traces", s.URL)
	n.start(ctx)
	n.run(ctx, "mkdir", "/untraced")
	n.run(ctx, "--traces", s.URL, "mkdir", "/traced")
	n.term(ctx)
	mu.Lock()
	defer mu.Unlock()
	for _, name := range []string{"leasefs mkdir", "leasefs.v1.Namenode/Mkdir", "journal"} {
		if len(seen[name]) != 1 {
			t.Errorf("%q is in %d traces; there are %v", name, len(seen[name]), slices.Sorted(maps.Keys(seen)))
			continue
		}
		for id := range seen[name] {
			if !seen["leasefs mkdir"][id] {
				t.Errorf("%q is in a trace of its own", name)
			}
		}
	}
}
