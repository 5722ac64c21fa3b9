package namenode_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// cachingStream is the stream of a session that caches. It acknowledges nothing
// by itself.
type cachingStream struct {
	pb.Namenode_SessionClient
	t       *testing.T
	terms   chan int64                  // what each renewal was answered, in ms
	revoked chan *pb.CacheRevocation    // as they come
	renewed chan *pb.RenewLeaseResponse // as they come
	ended   chan struct{}               // closed when the stream has ended
	seq     uint64
}

// cache opens the session's stream of that number, which caches.
func cache(t *testing.T, r *env.Raw, number uint64) *cachingStream {
	t.Helper()
	s, err := r.NN.Session(t.Context())
	if err == nil {
		err = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_Hello{Hello: &pb.Hello{Caller: r.Who, Cache: true, Stream: number}}})
	}
	if err == nil {
		_, err = s.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	c := &cachingStream{
		Namenode_SessionClient: s, t: t, terms: make(chan int64, 64), revoked: make(chan *pb.CacheRevocation, 64),
		renewed: make(chan *pb.RenewLeaseResponse, 64), ended: make(chan struct{}),
	}
	go func() {
		for {
			m, err := s.Recv()
			switch {
			case err != nil:
				close(c.ended)
				return
			case m.GetCacheTerm() != nil:
				c.terms <- m.GetCacheTerm().GetTermMs()
			case m.GetCacheRevocation() != nil:
				c.revoked <- m.GetCacheRevocation()
			case m.GetRenewed() != nil:
				c.renewed <- m.GetRenewed()
			}
		}
	}()
	return c
}

// renew renews the term, and returns what of it was granted, in ms.
func (c *cachingStream) renew() int64 {
	c.t.Helper()
	c.seq++
	c.send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: c.seq}}})
	return <-c.terms
}

func (c *cachingStream) ack(r *pb.CacheRevocation, drafts ...*pb.Draft) {
	c.t.Helper()
	c.send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Seq: r.GetSeq(), Drafts: drafts}}})
}

func (c *cachingStream) send(m *pb.SessionRequest) {
	c.t.Helper()
	if err := c.Send(m); err != nil {
		c.t.Fatal(err)
	}
}

// silentReader is a session that keeps what it reads, and never acknowledges
// that it dropped any of it, unless the test does so over the stream.
func silentReader(t *testing.T, n *env.Namenode, name string) (*env.Raw, *cachingStream) {
	t.Helper()
	r := n.Raw(t, name)
	c := cache(t, r, 1)
	if c.renew() == 0 {
		t.Fatal("no term of the cache was granted")
	}
	return r, c
}

// keep reads a path until the namenode lends it: what it did last must be durable.
func keep(t *testing.T, r *env.Raw, path string) *pb.StatResponse {
	t.Helper()
	var out *pb.StatResponse
	env.Eventually(t, path+" is lent", func() bool {
		var err error
		if out, err = r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At(path), Cache: true}); err != nil {
			t.Fatal(err)
		}
		return len(out.GetKeys()) > 0
	})
	return out
}

// A reader that did not acknowledge a recall is lent nothing under a new session's
// id either, whatever it calls itself. Another user is.
func TestASilentReaderIsNotLentToUnderAnotherID(t *testing.T) {
	t.Parallel()
	const term = 300 * time.Millisecond // a change waits so long by the machine's clock, too
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(term))
	other := n.Raw(t, "other")
	reader, stream := silentReader(t, n, "reader")
	w := other.Create("/f")
	if err := other.Close(w, 0); err != nil {
		t.Fatal(err)
	}
	keep(t, reader, "/f")
	changed := make(chan error, 1)
	go func() {
		_, err := other.NN.SetAttr(t.Context(), &pb.SetAttrRequest{Call: other.Call(), Caller: other.Who, At: pb.At("/f"), SetMode: true, Mode: 0o600})
		changed <- err
	}()
	<-stream.revoked
	clk.Advance(2 * term)
	if err := <-changed; err != nil {
		t.Fatal(err)
	}
	again, ann := n.Raw(t, "another name"), as(n.Raw(t, "reader"), "ann")
	if ms := cache(t, again, 1).renew(); ms != 0 {
		t.Errorf("its next session was granted a term of %d ms", ms)
	}
	if cache(t, ann, 1).renew() == 0 {
		t.Error("another user was granted no term")
	}
	clk.Advance(6 * term)
	if cache(t, n.Raw(t, "reader"), 1).renew() == 0 {
		t.Error("no term was granted after the penalty")
	}
}

// A file that is open for write is lent to nobody, by no call: its writer would have
// to wait for each reader that is gone.
func TestNoCallLendsAnOpenFile(t *testing.T) {
	t.Parallel()
	n := env.Start(t, termOf(longTerm))
	w := n.Raw(t, "writer")
	r, _ := silentReader(t, n, "reader")
	id := w.Create("/f")
	if err := w.Flush(id, 0, "x"); err != nil {
		t.Fatal(err)
	}
	stat, err := r.NN.Stat(t.Context(), &pb.StatRequest{Caller: r.Who, At: pb.At("/f"), Cache: true})
	if err != nil || len(stat.GetKeys()) > 0 {
		t.Errorf("stat: %v, %v", stat.GetKeys(), err)
	}
	file, err := r.NN.GetFile(t.Context(), &pb.GetFileRequest{Caller: r.Who, At: pb.Follow("/f"), Cache: true})
	if err != nil || len(file.GetKeys()) > 0 {
		t.Errorf("file: %v, %v", file.GetKeys(), err)
	}
	xattrs, err := r.NN.Xattrs(t.Context(), &pb.XattrsRequest{Caller: r.Who, At: pb.At("/f"), Cache: true})
	if err != nil || len(xattrs.GetKeys()) > 0 {
		t.Errorf("extended attributes: %v, %v", xattrs.GetKeys(), err)
	}
	list, err := r.NN.List(t.Context(), &pb.ListRequest{Caller: r.Who, At: pb.Follow("/"), Cache: true})
	if err != nil || len(list.GetEntries()) != 1 || list.GetEntries()[0].GetKeep() {
		t.Errorf("list: %v, %v", list, err)
	}
	if err := w.Flush(id, 1, "y"); err != nil {
		t.Error("the writer waits for a reader:", err)
	}
}

// A change that waits for a reader is answered before its caller's time is over,
// with what it waits for.
func TestAWaitForAReaderIsAnsweredInTime(t *testing.T) {
	t.Parallel()
	n := env.Start(t, termOf(longTerm))
	other := n.Raw(t, "other")
	reader, _ := silentReader(t, n, "reader")
	mkdir(t, other, "/d", 0o755)
	keep(t, reader, "/d")
	fs := n.Client(t, func(c *client.Config) { c.Timeout = 32 * time.Second }) // an attempt has eight: the machine may stall for some
	err := fs.Chmod(t.Context(), "/d", 0o700)
	if !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "cached") {
		t.Fatalf("a namenode answers, and this is said: %v", err)
	}
}

// A change outwaits a reader that answers nothing, also one that keeps it waiting for
// longer than an attempt of the client takes.
func TestAChangeOutwaitsAReader(t *testing.T) {
	t.Parallel()
	const attempt = 4 * time.Second
	// The machine may stall for longer than an attempt before the change, or in its midst.
	n := env.Start(t, termOf(attempt*5/2))
	other := n.Raw(t, "other")
	reader, stream := silentReader(t, n, "reader")
	mkdir(t, other, "/d", 0o755)
	fs := n.Client(t, func(c *client.Config) { c.Timeout = 4 * attempt })
	var took time.Duration
	for range 3 { // a machine may stall for most of a term between the renewal and the change
		keep(t, reader, "/d")
		stream.renew() // for all of the term
		began := time.Now()
		err := fs.Chmod(t.Context(), "/d", 0o700)
		if took = time.Since(began); err != nil {
			t.Fatalf("after %v: %v", took, err)
		}
		if took >= attempt {
			return
		}
	}
	t.Fatalf("it took %v: it did not wait for the reader for longer than an attempt", took)
}

// A session may make its own draft without the number that was set aside for it
// once the namenode has forgotten that, and not before: it would be another file.
func TestADraftDoesNotHoldUpItsOwnMaking(t *testing.T) {
	t.Parallel()
	clk, with := env.FakeClock()
	n := env.Start(t, with, termOf(longTerm))
	r, other := n.Raw(t, "r"), n.Raw(t, "other")
	mkdir(t, r, "/d", 0o755)
	s := cache(t, r, 1)
	s.renew()
	create := func(as *env.Raw, path string) (*pb.OpenResponse, error) {
		return as.NN.Create(t.Context(), &pb.CreateRequest{Call: as.Call(), Caller: as.Who, At: pb.At(path), Close: true, Cache: true, Creations: true, Numbers: true})
	}
	var out *pb.OpenResponse
	names := 0
	env.Eventually(t, "the directory is delegated", func() (ok bool) {
		var err error
		if out, err = create(r, fmt.Sprint("/d/", names)); err != nil {
			t.Fatal(err)
		}
		for len(s.revoked) > 0 {
			s.ack(<-s.revoked)
		}
		names++
		clk.Advance(time.Second) // numbers are set aside once in a while
		return out.GetCreations() && out.GetFirstInode() != 0
	})
	s.renew()
	clk.Advance(longTerm / 2) // the draft counts longer than the session's term
	s.send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Drafts: []*pb.Draft{{Dir: out.GetParent().GetInode(), Name: "mine", Inode: out.GetFirstInode()}}}}})
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case rev := <-s.revoked:
				_ = s.Send(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: &pb.CacheAck{Seq: rev.GetSeq()}}})
			case <-stop:
				return
			}
		}
	}()
	if _, err := create(other, "/d/mine"); !errors.Is(err, fserror.Held) {
		t.Fatalf("another takes a draft's name: %v", err)
	}
	if _, err := create(r, "/d/mine"); !errors.Is(err, fserror.Held) {
		t.Fatalf("a file that is not the draft: %v", err)
	}
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	clk.Advance(longTerm * 3 / 4)
	env.Eventually(t, "its own draft is made without a number", func() bool {
		_, err := create(r, "/d/mine")
		return err == nil
	})
	if _, err := create(other, "/d/mine"); !errors.Is(err, fserror.Exists) {
		t.Fatalf("the draft is a file: %v", err)
	}
}
