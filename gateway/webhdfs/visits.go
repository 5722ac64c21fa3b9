package webhdfs

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
)

// visits tell the log of connections that end before a whole request has come: net/http answers or
// closes those without a word. It is safe for concurrent use.
type visits struct {
	log *slog.Logger
	tls bool

	mu sync.Mutex
	of map[net.Conn]*visit
}

// visit is a connection.
type visit struct {
	begun  bool        // something has come; used by the connection's own goroutine
	served atomic.Bool // the last request that has begun was whole
}

type visitKey struct{}

// connContext is http.Server.ConnContext.
func (vs *visits) connContext(ctx context.Context, c net.Conn) context.Context {
	v := new(visit)
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.of[c] = v
	return context.WithValue(ctx, visitKey{}, v)
}

// served notes that a request is whole, but for its body.
func served(r *http.Request) {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		v.served.Store(true)
	}
}

// note is told each state of a connection.
func (vs *visits) note(c net.Conn, state http.ConnState) {
	vs.mu.Lock()
	defer vs.mu.Unlock()
	v := vs.of[c]
	if v == nil {
		return
	}
	switch state {
	case http.StateActive:
		v.begun = true
		v.served.Store(false)
	case http.StateClosed, http.StateHijacked:
		delete(vs.of, c)
		if !v.served.Load() && (v.begun || !vs.tls) { // else net/http tells of the handshake
			vs.log.Debug("a connection ended before a whole request had come", "from", c.RemoteAddr().String())
		}
	}
}
