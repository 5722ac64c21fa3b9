package webhdfs

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/leasefs/leasefs/gateway/still"
	"github.com/leasefs/leasefs/namenode/conns"
)

// visits tell the log of connections that end before a whole request has come: net/http answers or
// closes those without a word. It is safe for concurrent use.
type visits struct {
	log   *slog.Logger
	tls   bool
	still *still.Watch

	mu sync.Mutex
	of map[net.Conn]*visit
}

// visit is a connection.
type visit struct {
	visits *visits
	conn   net.Conn
	stood  int64       // how often the process had stood still when it began
	begun  bool        // something has come; used by the connection's own goroutine
	served atomic.Bool // the last request that has begun was whole
}

type visitKey struct{}

// connContext is http.Server.ConnContext.
func (vs *visits) connContext(ctx context.Context, c net.Conn) context.Context {
	v := &visit{visits: vs, conn: plain(c), stood: vs.still.Times()}
	vs.mu.Lock()
	defer vs.mu.Unlock()
	vs.of[c] = v
	return context.WithValue(ctx, visitKey{}, v)
}

// plain is the connection below TLS.
func plain(c net.Conn) net.Conn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn()
	}
	return c
}

// errGone ends a request before it changes anything.
var errGone = fmt.Errorf("the client had gone before the request began: %w", errCut)

// ifThere returns errGone if the client has ended the connection. A gateway that stood still for a
// while finds requests whose clients have made them by another one long ago, and more since then. Some
// cannot have ended their connections: of one that is older than the last standstill nothing is taken
// that changes something, and clients make another.
func ifThere(r *http.Request) error {
	v, ok := r.Context().Value(visitKey{}).(*visit)
	if !ok {
		return nil
	}
	if cc, ok := v.conn.(*conns.Conn); ok && cc.Gone() {
		return errGone
	}
	return ifFresh(r)
}

// ifFresh is ifThere of a client that may end his half of the connection.
func ifFresh(r *http.Request) error {
	if v, ok := r.Context().Value(visitKey{}).(*visit); ok {
		if s := v.visits.still; s.For() > 0 || v.stood < s.Times() {
			return errGone
		}
	}
	return nil
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
