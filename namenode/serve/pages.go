package serve

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// addBlocks serves blocks.
func (f *Front) addBlocks(mux *http.ServeMux) {
	mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		if h := f.blocks.Load(); h != nil {
			(*h).ServeHTTP(w, r)
			return
		}
		answer(w, errNotYet)
	})
}

// addPages serves the pages of an operator.
func (f *Front) addPages(mux *http.ServeMux, metrics prometheus.Gatherer) {
	page := func(pattern string, h http.HandlerFunc) { mux.HandleFunc(pattern, f.unrevoked(h)) }
	page("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: f.cfg.Tracer != nil}).ServeHTTP)
	page("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { answer(w, f.cfg.Loops.Err()) })
	page("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { answer(w, f.role.Serves()) })
	page("GET /activez", func(w http.ResponseWriter, _ *http.Request) {
		if role := f.role.String(); role != "active" {
			answer(w, errors.New(role))
			return
		}
		answer(w, nil)
	})
	if f.cfg.Page != nil {
		page("GET /{$}", http.RedirectHandler("/page/", http.StatusSeeOther).ServeHTTP)
		page("/page/", f.asPeer(f.cfg.Page(f.call)).ServeHTTP)
	}
	if f.cfg.Pprof {
		page("/debug/pprof/", pprof.Index)
		page("/debug/pprof/profile", pprof.Profile)
		page("/debug/pprof/trace", pprof.Trace)
		page("/debug/pprof/symbol", pprof.Symbol)
		page("/debug/pprof/cmdline", pprof.Cmdline)
	}
}

// unrevoked is h for whose certificate, if one was shown, is still good: the handshake knows of
// no revocation, and a connection outlives it.
func (f *Front) unrevoked(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.TLS != nil {
			if err := f.cfg.Guard.Certificate(r.TLS.PeerCertificates); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
		}
		h(w, r)
	}
}

var errNotYet = errors.New("the namenode is starting")

// answer says that all is well, or why it is not.
func answer(w http.ResponseWriter, err error) {
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintln(w, "not ready:", err)
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}

// BaseURL is where clients reach the blocks.
func (f *Front) BaseURL() string { return f.url(f.httpLis) }

// PagesURL is where people reach the pages.
func (f *Front) PagesURL() string {
	if f.pagesLis != nil {
		return f.url(f.pagesLis)
	}
	return f.url(f.httpLis)
}

func (f *Front) url(l net.Listener) string {
	scheme := "http://"
	if f.cfg.TLS != nil {
		scheme = "https://"
	}
	if f.cfg.AdvertiseHTTP != "" && l == f.httpLis {
		return scheme + f.cfg.AdvertiseHTTP
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || !addr.IP.IsUnspecified() {
		return scheme + l.Addr().String()
	}
	host, err := os.Hostname()
	if err != nil {
		host = "127.0.0.1"
	}
	return scheme + net.JoinHostPort(host, fmt.Sprint(addr.Port))
}
