package namenode_test

import (
	"net/http"
	"testing"
)

// A standby that follows is ready, and not active: an orchestrator that rolls
// namenodes out one by one continues. One that follows nothing is not ready.
func TestReadyAndActive(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, way := p.config()
	a := p.active(acfg)
	b := p.start(bcfg)
	says := func(addr, path string, want int) {
		t.Helper()
		p.eventually(path+" is as it should be", func() bool {
			code, _ := page(t, addr, path)
			return code == want
		})
	}
	says(a.HTTPAddr(), "/readyz", http.StatusOK)
	says(a.HTTPAddr(), "/activez", http.StatusOK)
	says(b.HTTPAddr(), "/readyz", http.StatusOK)
	says(b.HTTPAddr(), "/activez", http.StatusServiceUnavailable)
	way.Down()
	says(b.HTTPAddr(), "/readyz", http.StatusServiceUnavailable)
	says(b.HTTPAddr(), "/activez", http.StatusServiceUnavailable)
	way.Up()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
