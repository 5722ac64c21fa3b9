package namenode_test

import (
	"io"
	"net/http"
	"sync/atomic"
	"testing"
)

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
