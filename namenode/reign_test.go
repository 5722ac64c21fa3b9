package namenode_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// A hand-over whose reply is lost happens once: sent again, it finds that the
// term that was to end has ended.
func TestHandOverHappensOnce(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a := p.start(acfg)
	p.becomes(a, "active")
	b := p.start(bcfg)
	ra, rb := env.RawAt(t, acfg.Listen, "operator"), env.RawAt(t, bcfg.Listen, "operator")
	term := func(r *env.Raw) uint64 {
		t.Helper()
		s, err := r.Admin.Status(t.Context(), &pb.StatusRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return s.GetTerm()
	}
	was := term(ra)
	req := &pb.FailoverRequest{Caller: ra.Who, Term: was}
	p.eventually("it hands over", func() bool { // a busy machine may hold the standby up
		out, err := ra.Admin.Failover(t.Context(), req)
		if err == nil && out.GetNext() != bcfg.Listen || err != nil && !errors.Is(err, fserror.Retry) {
			t.Fatalf("%v, %v", out, err)
		}
		return err == nil
	})
	p.becomes(b, "active")
	<-a.Done()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	a = p.start(acfg)
	p.becomes(a, "standby")
	if out, err := rb.Admin.Failover(t.Context(), req); err != nil || out.GetNext() != bcfg.Listen {
		t.Errorf("sent again: %v, %v", out, err)
	}
	if _, err := rb.Admin.Failover(t.Context(), &pb.FailoverRequest{Caller: rb.Who, Term: was + 10}); err == nil || !strings.Contains(err.Error(), "has not begun") {
		t.Errorf("of a term to come: %v", err)
	}
	if _, err := rb.Admin.Failover(t.Context(), &pb.FailoverRequest{Caller: rb.Who}); !errors.Is(err, fserror.InvalidArgument) || !strings.Contains(err.Error(), fmt.Sprintf("this is term %d", was+1)) {
		t.Errorf("of no term: %v", err)
	}
	if got := term(rb); b.Role() != "active" || got != was+1 {
		t.Errorf("it is %s in term %d, and began %d", b.Role(), got, was+1)
	}

	// So with the library, whose first reply is lost.
	var lost atomic.Bool
	f, err := client.New(t.Context(), client.Config{Namenodes: []string{acfg.Listen, bcfg.Listen}, User: "root", DialOptions: []grpc.DialOption{
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, method, req, reply, cc, opts...)
			if err == nil && method == pb.Admin_Failover_FullMethodName && !lost.Swap(true) {
				return status.Error(codes.Unavailable, "lost")
			}
			return err
		}),
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	done := make(chan *namenode.Server)
	go func() { // its process, which restarts it
		<-b.Done()
		_ = b.Close()
		s, err := namenode.Start(context.WithoutCancel(t.Context()), bcfg)
		if err != nil {
			t.Error(err)
		}
		done <- s
	}()
	next, err := f.Admin().Failover(t.Context())
	if err != nil || next != acfg.Listen {
		t.Errorf("%q, %v", next, err)
	}
	b = <-done
	p.becomes(b, "standby")
	if got := term(ra); a.Role() != "active" || got != was+2 || !lost.Load() {
		t.Errorf("it is %s in term %d, and began %d; a reply was lost: %t", a.Role(), got, was+2, lost.Load())
	}
	for _, s := range []*namenode.Server{a, b} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// deadStore is a disk on which nobody can list blocks.
type deadStore struct {
	vfs.FS
	blocks string
	dead   *atomic.Bool
}

func (d deadStore) List(dir string) ([]string, error) {
	if d.dead.Load() && strings.HasPrefix(dir, d.blocks) {
		return nil, &os.PathError{Op: "readdir", Path: dir, Err: syscall.EIO}
	}
	return d.FS.List(dir)
}

// A namenode takes over though the block store does not answer. When it does,
// and has blocks of later reigns, the namenode begins another, above them; until
// then it searches for no orphans.
func TestTakeOverWithoutTheStore(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var dead atomic.Bool
	cfg := func() namenode.Config {
		c, _ := p.config(func(c *namenode.Config) { c.FS = deadStore{vfs.OS(), p.blocks, &dead} })
		return c
	}
	acfg, bcfg := cfg(), cfg()
	a := p.start(acfg)
	p.becomes(a, "active")
	b := p.start(bcfg)
	f := p.client(acfg.Listen, bcfg.Listen)
	ra := env.RawAt(t, acfg.Listen, "writer")
	if _, err := ra.PutBlock(ra.Create("/block"), []byte("a block")); err != nil {
		t.Fatal(err)
	}
	dead.Store(true)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(b, "active")
	if err := f.WriteFile(t.Context(), "/small", []byte("small")); err != nil {
		t.Fatal(err)
	}
	rb := env.RawAt(t, bcfg.Listen, "operator")
	if _, err := rb.Admin.Collect(t.Context(), &pb.CollectRequest{Caller: rb.Who}); fserror.KindOf(err) != fserror.Unavailable {
		t.Errorf("searching for orphans: %v", err)
	}
	// Another ensemble's blocks, of term 99.
	terms, err := filepath.Glob(filepath.Join(p.blocks, "*", fmt.Sprintf("%016x", 1)))
	if err != nil || len(terms) != 1 {
		t.Fatalf("the folder of term 1: %q, %v", terms, err)
	}
	if err := os.CopyFS(filepath.Join(filepath.Dir(terms[0]), fmt.Sprintf("%016x", 99)), os.DirFS(terms[0])); err != nil {
		t.Fatal(err)
	}
	dead.Store(false)
	select {
	case <-b.Done():
	case <-time.After(time.Minute):
		t.Fatal("it continues below another's blocks")
	}
	if err := b.Err(); !reign.Restartable(err) || !strings.Contains(err.Error(), "later reigns") {
		t.Errorf("it ended with %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b = p.start(bcfg)
	p.becomes(b, "active")
	if s, err := rb.Admin.Status(t.Context(), &pb.StatusRequest{}); err != nil || s.GetTerm() != 100 {
		t.Errorf("it is in term %d, %v", s.GetTerm(), err)
	}
	rb.File("/small")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
