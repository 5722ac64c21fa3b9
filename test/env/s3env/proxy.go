package s3env

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// Reply is a whole answer.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// Around is called for each request. It sends the request, with its body or
// another, once, several times or not at all, and returns what the client sees:
// nil breaks the connection off. To lose a reply, it sends and returns nil; to
// delay a request, it waits before it sends, and the client may be gone then.
// send returns nil if the server did not answer.
type Around func(r *http.Request, body []byte, send func(body []byte) *Reply) *Reply

// Proxy is the line between clients and an S3 server. At first it delivers.
// Host and signatures pass unchanged.
type Proxy struct {
	Endpoint string // http://127.0.0.1:port

	server *Server
	carry  http.Transport
	mu     sync.Mutex
	around Around
	counts map[string]int
}

// Proxy puts a proxy in front of the server. It ends with the test.
func (s *Server) Proxy(t testing.TB) *Proxy {
	p := &Proxy{server: s, counts: map[string]int{}}
	p.carry.DisableCompression = true
	srv := httptest.NewServer(http.HandlerFunc(p.serve))
	p.Endpoint = srv.URL
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
		p.carry.CloseIdleConnections()
	})
	return p
}

// URL is what leasefs takes for --blocks.
func (p *Proxy) URL(prefix string) string { return p.server.urlAt(p.Endpoint, prefix) }

// Set makes around stand at the line from now on; nil takes it away.
func (p *Proxy) Set(around Around) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.around = around
}

// Count is how many requests of a method came.
func (p *Proxy) Count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.counts[method]
}

// Trouble is the reply of a store that asks for patience.
func Trouble() *Reply {
	return &Reply{
		Status: http.StatusServiceUnavailable, Header: http.Header{"Content-Type": {"application/xml"}},
		Body: []byte(`<?xml version="1.0" encoding="UTF-8"?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>`),
	}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client broke off
	}
	p.mu.Lock()
	p.counts[r.Method]++
	around := p.around
	p.mu.Unlock()
	send := func(body []byte) *Reply { return p.deliver(r, body) }
	var reply *Reply
	if around == nil {
		reply = send(body)
	} else {
		reply = around(r, body, send)
	}
	if reply == nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range reply.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(reply.Status)
	_, _ = w.Write(reply.Body) // the client may be gone
}

// deliver sends a request to the server, also when the client is gone.
func (p *Proxy) deliver(r *http.Request, body []byte) *Reply {
	out := r.Clone(context.WithoutCancel(r.Context()))
	out.RequestURI = ""
	out.URL.Scheme, out.URL.Host = "http", p.server.Endpoint[len("http://"):]
	out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	out.Header.Del("Expect")
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	resp, err := p.carry.RoundTrip(out)
	if err != nil {
		return nil
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil
	}
	header := resp.Header.Clone()
	header.Del("Transfer-Encoding")
	return &Reply{Status: resp.StatusCode, Header: header, Body: answer}
}
