package s3model_test

import (
	"crypto/rand"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/blocktest"
	"github.com/leasefs/leasefs/test/sim/s3model"
	"github.com/leasefs/leasefs/test/sim/simnet"
)

func model() *s3model.Server {
	return s3model.New(s3model.Config{Bucket: "blocks", Region: "here", AccessKey: "key", SecretKey: "secret"})
}

func open(t *testing.T, url string, id [16]byte, via http.RoundTripper) *s3.Store {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	loc, err := s3.ParseURL("s3://blocks/some/where?region=here&endpoint=" + url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), s3.Config{Location: loc, NamespaceID: id, Transport: via})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// The suite that real servers pass.
func TestConformance(t *testing.T) {
	srv := httptest.NewServer(model())
	defer srv.Close()
	blocktest.Run(t, func(t *testing.T) blocktest.Harness {
		var id [16]byte
		_, _ = rand.Read(id[:])
		return blocktest.Harness{Store: open(t, srv.URL, id, nil)}
	})
	blocktest.RunObjects(t, func(t *testing.T) (one, another blockstore.Objects) {
		var id [16]byte
		_, _ = rand.Read(id[:])
		return open(t, srv.URL, id, nil), open(t, srv.URL, id, nil)
	})
}

// In a bubble, by a network of the bubble: what fails as the model is told.
func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, net := model(), simnet.New()
		l, err := net.Host("store").Listen("tcp", ":9000")
		if err != nil {
			t.Fatal(err)
		}
		srv := &http.Server{Handler: m, ReadHeaderTimeout: time.Minute}
		done := make(chan error, 1)
		go func() { done <- srv.Serve(l) }()
		pipe := &http.Transport{DialContext: net.Host("a").DialContext, ResponseHeaderTimeout: time.Minute}
		s := open(t, "http://store:9000", [16]byte{1}, pipe)
		ctx, key := t.Context(), blockstore.Key{Term: 1, Seq: 1}
		obj, crc := blockstore.Seal(make([]byte, 1000))

		m.SetListLag(time.Minute)
		m.Lose(s3model.LostReply, 1)
		if err := s.Put(ctx, key, obj, crc); err != nil {
			t.Errorf("a lost reply: %v", err)
		}
		if infos, err := s.List(ctx, blockstore.Key{}, 10); len(infos) != 0 || err != nil {
			t.Errorf("a list that lags: %v, %v", infos, err)
		}
		<-time.After(time.Minute)
		if infos, err := s.List(ctx, blockstore.Key{}, 10); len(infos) != 1 || err != nil {
			t.Errorf("a list that has come up: %v, %v", infos, err)
		}
		m.SetListLag(0)
		signed, err := s.SignPut(blockstore.Key{Term: 1, Seq: 2}, int64(len(obj)), crc, time.Now().Add(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		put := func() int {
			req, err := signed.NewRequest(ctx, obj)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := pipe.RoundTrip(req)
			if err != nil {
				return 0
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		m.Lose(s3model.LostRequest, 1)
		if status := put(); status != 0 {
			t.Errorf("a lost request: %d", status)
		}
		if n := len(m.Names("")); n != 1 {
			t.Errorf("a lost request has left %d objects, not 1", n)
		}
		m.Late(1, time.Hour) // longer than the URL is good
		if status := put(); status != 0 {
			t.Errorf("a PUT that is late: %d", status)
		}
		if n := len(m.Names("")); n != 1 {
			t.Errorf("before a late PUT lands there are %d objects, not 1", n)
		}
		<-time.After(time.Hour)
		if n := len(m.Names("")); n != 2 {
			t.Errorf("after a late PUT has landed there are %d objects, not 2", n)
		}
		if status := put(); status != http.StatusForbidden {
			t.Errorf("a URL that is over: %d", status)
		}
		m.SetTrouble(1)
		if err := s.Delete(ctx, key); !errors.Is(err, fserror.Unavailable) {
			t.Errorf("trouble: %v", err)
		}
		m.SetTrouble(0)
		m.SetFull(true)
		if err := s.Put(ctx, blockstore.Key{Term: 1, Seq: 3}, obj, crc); !errors.Is(err, fserror.NoSpace) {
			t.Errorf("a full store: %v", err)
		}
		pipe.CloseIdleConnections()
		_ = srv.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
