package fuse_test

import (
	"context"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// late is a file that grows elsewhere from 10 bytes to 20 while the kernel's answers
// about it are late.
type late struct {
	*testing.T
	m     *mounted
	k     *kernel
	other *client.FS
	w     *client.Writer // elsewhere; nil: the file is closed
	kept  *os.File       // is read through pages
	path  *os.File       // O_PATH
	reply *atomic.Pointer[heldReply]
}

// heldReply holds the namenode's next description of a file back.
type heldReply struct{ held, let chan struct{} }

func newLate(t *testing.T) *late {
	r := newRig(t)
	l := &late{T: t, other: r.Client(t), reply: new(atomic.Pointer[heldReply])}
	l.m, l.k = r.through(fuse.Options{}, func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				err := invoke(ctx, method, req, reply, cc, opts...)
				if _, ok := req.(*pb.StatRequest); ok {
					if h := l.reply.Swap(nil); h != nil {
						close(h.held)
						<-h.let
					}
				}
				return err
			}))
	})
	must(t, l.other.WriteFile(t.Context(), "/f", []byte("0123456789")))
	must(t, l.other.WriteFile(t.Context(), "/g", nil))
	l.kept, l.path = l.m.open("f", os.O_RDONLY), l.m.open("f", unix.O_PATH)
	if n := l.read(); n != 10 {
		t.Fatal(n, "bytes are read at first")
	}
	var err error
	l.w, err = l.other.Append(t.Context(), "/f")
	must(t, err)
	return l
}

// read is how much one read(2) finds.
func (l *late) read() int {
	var buf [100]byte
	n, err := unix.Pread(int(l.kept.Fd()), buf[:], 0)
	must(l, err)
	return n
}

// grow has returned when 20 bytes are durable.
func (l *late) grow() {
	_, err := l.w.Write([]byte("abcdefghij"))
	must(l, err)
	must(l, l.w.Flush(l.Context()))
}

func (l *late) stat() error {
	var st unix.Stat_t
	return unix.Fstat(int(l.path.Fd()), &st)
}

// lookup has the name looked up, and no more.
func (l *late) lookup() error {
	f, err := os.OpenFile(l.m.path("f"), unix.O_PATH, 0)
	if err == nil {
		err = f.Close()
	}
	return err
}

// underWay begins to do something whose answer is held back. let lets it go, and returns
// when the kernel has taken it in.
func (l *late) underWay(answer string, do func() error) (let func()) {
	l.Helper()
	held, release := l.k.holdBack(answer)
	return l.begun(held, release, do)
}

func (l *late) begun(held <-chan struct{}, release func(), do func() error) (let func()) {
	l.Helper()
	l.Cleanup(release)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and so no other's
		done <- do()
	}()
	select {
	case <-held:
	case err := <-done:
		l.Fatal("it was not asked for: ", err)
	}
	return func() {
		l.Helper()
		release()
		must(l, <-done)
	}
}

// TestLateAttributesHideNothing: of two answers about a file that are under way the
// kernel keeps the one that it comes to first, be it the older. A read that begins after
// the file has grown elsewhere finds all of it even so.
func TestLateAttributesHideNothing(t *testing.T) {
	older := func(answer string, do func(l *late) error) func(l *late) func() {
		return func(l *late) func() {
			let := l.underWay(answer, func() error { return do(l) })
			l.grow()
			return let
		}
	}
	answered := func(do func(l *late) error) func(l *late) func() {
		return func(l *late) func() {
			h := &heldReply{make(chan struct{}), make(chan struct{})}
			l.reply.Store(h)
			let := l.begun(h.held, sync.OnceFunc(func() { close(h.let) }), func() error { return do(l) })
			l.grow()
			return let
		}
	}
	for name, begin := range map[string]func(l *late) (let func()){
		"GETATTR": older("GETATTR", (*late).stat),
		"LOOKUP":  older("LOOKUP f", (*late).lookup),
		"READDIRPLUS": older("READDIRPLUS", func(l *late) error {
			_, err := os.ReadDir(l.m.dir)
			return err
		}),
		"UNLINK": older("UNLINK f", func(l *late) error { return os.Remove(l.m.path("f")) }),
		"RENAME": older("RENAME f", func(l *late) error { return os.Rename(l.m.path("g"), l.m.path("f")) }),
		"a read": older("GETATTR", func(l *late) error { l.read(); return nil }),
		"a GETATTR that the namenode answered late": answered((*late).stat),
		"a SETATTR that the namenode answered late": answered(func(l *late) error { return l.kept.Chmod(0o600) }),
		"two": func(l *late) func() {
			one := l.underWay("GETATTR", l.stat)
			two := l.underWay("LOOKUP f", l.lookup)
			l.grow()
			return func() { two(); one() }
		},
		"a notification": func(l *late) func() {
			l.grow()
			must(l, l.w.Close())
			return func() { must(l, l.other.Chmod(l.Context(), "/f", 0o600)) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLate(t)
			let := begin(l)
			var n int
			read := l.underWay("GETATTR", func() error { n = l.read(); return nil })
			let()
			read()
			if n != 20 {
				t.Errorf("%d bytes are read, 20 were there before", n)
			}
		})
	}
}
