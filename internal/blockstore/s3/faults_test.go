package s3_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/s3env"
)

var (
	block    = blockstore.Key{Term: 7, Seq: 8}
	sealed   = seal("the block")
	imposter = seal("THE BLOCK") // of the same length
)

func seal(text string) []byte {
	object, _ := blockstore.Seal(bytes.Repeat([]byte(text), 5000))
	return object
}

// requireContent wants the block to be just that; nil: not to be.
func requireContent(t *testing.T, s *s3.Store, want []byte) {
	t.Helper()
	r, err := s.Get(t.Context(), block, 0, -1)
	if want == nil {
		if !errors.Is(err, fserror.NotFound) {
			t.Fatalf("the block is there, or: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v; want the %d that were put first", len(got), err, len(want))
	}
}

func signPut(t *testing.T, s *s3.Store, object []byte) blockstore.Signed {
	t.Helper()
	signed, err := s.SignPut(block, int64(len(object)), blockstore.CRC(object), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// send sends a signed request; status 0 is a lost reply.
func send(t *testing.T, c *http.Client, signed blockstore.Signed, body []byte) int {
	req, err := signed.NewRequest(t.Context(), body)
	if err != nil {
		t.Error(err)
		return 0
	}
	resp, err := c.Do(req)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// once does something with the first request of a method, and delivers the rest.
func once(method string, do s3env.Around) s3env.Around {
	var done atomic.Bool
	return func(r *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		if r.Method == method && !done.Swap(true) {
			return do(r, body, deliver)
		}
		return deliver(body)
	}
}

// lost delivers and loses the reply.
func lost(_ *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
	deliver(body)
	return nil
}

// faults puts a bad line between store and server.
func faults(t *testing.T, server *s3env.Server) {
	tests := []struct {
		name string
		test func(*testing.T, *s3.Store, *s3env.Proxy)
	}{
		{"LostReply", lostReply},
		{"LostReplyOfAnother", lostReplyOfAnother},
		{"NeverArrived", neverArrived},
		{"Storm", storm},
		{"EndlessStorm", endlessStorm},
		{"DuplicateWithOtherBytes", duplicateWithOtherBytes},
		{"LatePut", latePut},
		{"LateAfterCollection", lateAfterCollection},
		{"BodyBrokenOff", bodyBrokenOff},
		{"DeleteRepeated", deleteRepeated},
		{"ProbeThroughStorms", probeThroughStorms},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			proxy := server.Proxy(t)
			c.test(t, open(t, server, proxy.URL("")), proxy)
		})
	}
}

// lostReply: the retry finds the name taken, by our own bytes.
func lostReply(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	p.Set(once(http.MethodPut, lost))
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	if n := p.Count(http.MethodPut); n != 2 {
		t.Errorf("%d PUTs, want 2", n)
	}
	if st := s.Stats(); st.Retries != 1 || st.Requests[s3.OutcomeNone] != 1 || st.Requests[s3.OutcomeOK] != 1 || st.Requests[s3.OutcomeRefused] != 1 || st.Errors[fserror.Exists] != 1 {
		t.Errorf("counted %+v", st) // a lost reply, a 412, a look
	}
	requireContent(t, s, sealed)
	// All replies may be lost.
	if err := s.Delete(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	p.Set(func(r *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		reply := deliver(body)
		if r.Method == http.MethodPut {
			return nil
		}
		return reply
	})
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	p.Set(nil)
	// Without a lost reply a taken name is one, whatever is under it.
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); !errors.Is(err, fserror.Exists) {
		t.Errorf("a second Put: %v", err)
	}
}

// lostReplyOfAnother: the retry finds the name taken, by other bytes.
func lostReplyOfAnother(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	if err := s.Put(t.Context(), block, imposter, blockstore.CRC(imposter)); err != nil {
		t.Fatal(err)
	}
	p.Set(once(http.MethodPut, lost))
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); !errors.Is(err, fserror.Exists) {
		t.Errorf("%v, want Exists", err)
	}
	requireContent(t, s, imposter)
}

func neverArrived(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	p.Set(once(http.MethodPut, func(*http.Request, []byte, func([]byte) *s3env.Reply) *s3env.Reply { return nil }))
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	requireContent(t, s, sealed)
}

// storm: three of every four requests are refused, and half of the refused
// ones were carried out.
func storm(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	p.Set(stormy(4))
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	requireContent(t, s, sealed)
	if infos, err := s.List(t.Context(), blockstore.Key{}, 10); err != nil || len(infos) != 1 || infos[0].Key != block {
		t.Errorf("%v, %v", infos, err)
	}
	if err := s.Delete(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	requireContent(t, s, nil)
}

func stormy(of uint32) s3env.Around {
	var n atomic.Uint32
	return func(_ *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		switch i := n.Add(1); {
		case i%of == 0:
			return deliver(body)
		case i%2 == 0:
			deliver(body)
		}
		return s3env.Trouble()
	}
}

// endlessStorm: the tries are bounded.
func endlessStorm(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	p.Set(func(*http.Request, []byte, func([]byte) *s3env.Reply) *s3env.Reply { return s3env.Trouble() })
	err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed))
	if !errors.Is(err, fserror.Unavailable) || !strings.Contains(err.Error(), "SlowDown") {
		t.Errorf("%v, want Unavailable", err)
	}
	if n := p.Count(http.MethodPut); n != s3.DefaultMaxTries {
		t.Errorf("%d PUTs, want %d", n, s3.DefaultMaxTries)
	}
	p.Set(nil)
	requireContent(t, s, nil)
}

// duplicateWithOtherBytes: the line repeats a client's PUT, with other bytes
// first, and after it.
func duplicateWithOtherBytes(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	var refused []int
	p.Set(once(http.MethodPut, func(_ *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		refused = append(refused, deliver(imposter).Status, deliver(imposter[1:]).Status)
		reply := deliver(body)
		refused = append(refused, deliver(imposter).Status, deliver(body).Status)
		return reply
	}))
	if status := send(t, client(t), signPut(t, s, sealed), sealed); status != http.StatusOK {
		t.Fatalf("PUT: %d", status)
	}
	for _, status := range refused {
		if status/100 != 4 {
			t.Errorf("answers to the repeated PUTs: %v", refused)
		}
	}
	requireContent(t, s, sealed)
}

// latePut: a PUT of a fenced writer is held up on its way until another has put
// the block.
func latePut(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	held, release := make(chan struct{}), make(chan struct{})
	late := make(chan int, 1)
	p.Set(once(http.MethodPut, func(_ *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		close(held)
		<-release
		reply := deliver(body)
		late <- reply.Status
		return nil // its client is gone
	}))
	signed := signPut(t, s, imposter)
	done := make(chan struct{})
	go func() { defer close(done); send(t, client(t), signed, imposter) }()
	<-held
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Error(err)
	}
	close(release)
	if status := <-late; status != http.StatusPreconditionFailed {
		t.Errorf("the late PUT: %d", status)
	}
	<-done
	requireContent(t, s, sealed)
}

// lateAfterCollection: the PUT comes when its key was collected. It makes an
// orphan, which the next sweep finds and removes.
func lateAfterCollection(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	held, release := make(chan struct{}), make(chan struct{})
	p.Set(once(http.MethodPut, func(_ *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		close(held)
		<-release
		return deliver(body)
	}))
	signed := signPut(t, s, sealed)
	status := make(chan int, 1)
	go func() { status <- send(t, client(t), signed, sealed) }()
	<-held
	if err := s.Delete(t.Context(), block); err != nil {
		t.Error(err)
	}
	close(release)
	if got := <-status; got != http.StatusOK {
		t.Errorf("the late PUT: %d", got)
	}
	infos, err := s.List(t.Context(), blockstore.Key{}, 10)
	if err != nil || !slices.ContainsFunc(infos, func(i blockstore.Info) bool { return i.Key == block }) {
		t.Fatalf("the sweep finds %v, %v", infos, err)
	}
	if err := s.Delete(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	requireContent(t, s, nil)
}

// bodyBrokenOff: each answer to a GET ends after a third.
func bodyBrokenOff(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	p.Set(func(r *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		reply := deliver(body)
		if r.Method == http.MethodGet && len(reply.Body) > 3 {
			reply.Body = reply.Body[:len(reply.Body)/3] // its Content-Length says more
		}
		return reply
	})
	requireContent(t, s, sealed)
}

func deleteRepeated(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	if err := s.Put(t.Context(), block, sealed, blockstore.CRC(sealed)); err != nil {
		t.Fatal(err)
	}
	p.Set(once(http.MethodPost, lost))
	if err := s.Delete(t.Context(), block); err != nil {
		t.Fatal(err)
	}
	requireContent(t, s, nil)
}

// probeThroughStorms: trouble is not taken for a lack of enforcement.
func probeThroughStorms(t *testing.T, s *s3.Store, p *s3env.Proxy) {
	p.Set(func(r *http.Request, body []byte, deliver func([]byte) *s3env.Reply) *s3env.Reply {
		if r.Method == http.MethodPut {
			return s3env.Trouble()
		}
		return deliver(body)
	})
	if err := s.Probe(t.Context()); !errors.Is(err, fserror.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
	p.Set(nil)
	if err := s.Probe(t.Context()); err != nil {
		t.Error(err)
	}
}
