package namenode_test

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/test/env"
)

// What only grows is a counter, by its name and by its type, so that rate() takes a
// restart for what it is.
func TestTotalsAreCounters(t *testing.T) {
	t.Parallel()
	page := env.Start(t).Metrics(t)
	counters := 0
	for line := range strings.Lines(page) {
		name, kind, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# TYPE "), " ")
		if !ok || !strings.HasPrefix(line, "# TYPE ") {
			continue
		}
		total := strings.HasSuffix(name, "_total")
		if total != (kind == "counter") {
			t.Errorf("%s is a %s", name, kind)
		}
		if total {
			counters++
		}
	}
	if counters < 20 {
		t.Errorf("only %d counters:\n%s", counters, page)
	}
}

// Metrics are asked for all the time, also while one of several namenodes opens what they
// tell of. (The race detector sees who does not wait for that.)
func TestMetricsOfAStart(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	cfg, _ := p.config()
	var answers atomic.Int64
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-over:
				return
			default:
			}
			if resp, err := http.Get("http://" + cfg.HTTP + "/metrics"); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				answers.Add(1)
			}
		}
	}()
	defer func() {
		close(over)
		<-ended
	}()
	s := p.active(cfg)
	before := answers.Load()
	p.eventually("its metrics are read", func() bool { return answers.Load() > before+1 })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
