package fuse

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
)

// toldInode counts what the kernel is told of an inode.
type toldInode struct {
	ino          uint64
	attrs, pages int
	unknown      int // so often it is not known
	gone         bool
}

func (n *toldInode) number() uint64  { return n.ino }
func (n *toldInode) forgotten() bool { return n.gone }

func (n *toldInode) grow(context.Context, int64) bool { return true }

func (n *toldInode) drop(pages bool) syscall.Errno {
	if n.unknown > 0 {
		n.unknown--
		return syscall.ENOENT
	}
	if pages {
		n.pages++
	} else {
		n.attrs++
	}
	return 0
}

// newBook is a book of a mount whose cache lease has so much left.
func newBook(ctx context.Context, left time.Duration) *kernelCache {
	return newKernelCache(ctx, func() time.Duration { return left }, func(f func()) bool { go f(); return true })
}

func (n *toldInode) told(t *testing.T, attrs, pages int) {
	t.Helper()
	if n.attrs != attrs || n.pages != pages {
		t.Errorf("the kernel was told to drop attributes %d times, and pages %d times; want %d, %d", n.attrs, n.pages, attrs, pages)
	}
}

func TestBookOfAttributes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		n := &toldInode{ino: 7}
		change := client.Revocation{Inodes: []uint64{7}}

		k.revoked(change)
		n.told(t, 0, 0) // it has nothing
		g := k.glance(n)
		if d := k.attrs(n, g, time.Hour); d != maxAttrTime {
			t.Error("they may be kept for", d)
		}
		k.revoked(change)
		n.told(t, 0, 1)
		k.revoked(change)
		n.told(t, 0, 1) // it has nothing any more
		if d := k.attrs(n, g, time.Hour); d != 0 {
			t.Error("what was revoked since it was looked at may be kept for", d)
		}
		if d := k.attrs(n, k.glance(n), time.Millisecond); d != time.Millisecond {
			t.Error("those of a draft may be kept for", d)
		}
		k.takeAttrs(7)
		n.told(t, 1, 1)
		if d := k.attrs(n, k.glance(n), time.Hour); d == 0 {
			t.Error("they may not be kept again")
		}
		g = k.glance(n)
		k.revoked(client.Revocation{All: true})
		n.told(t, 1, 2)
		if k.glance(n) == g {
			t.Error("a glance is valid after all was revoked")
		}
		if d := newBook(t.Context(), 0).attrs(n, 0, time.Hour); d != 0 {
			t.Error("without a lease they may be kept for", d)
		}
	})
}

func TestBookOfPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		n := &toldInode{ino: 7}
		change := client.Revocation{Inodes: []uint64{7}}
		open := func(want uint32) {
			t.Helper()
			if got := k.pages(n, k.glance(n), true); got != want {
				t.Errorf("it is opened with the flags %x, want %x", got, want)
			}
		}
		open(0)
		open(fuse.FOPEN_KEEP_CACHE)
		if k.givesUp(change) {
			t.Error("a handler tells the kernel to drop pages")
		}
		n.told(t, 0, 0)
		k.revoked(change)
		n.told(t, 0, 1)
		if !k.givesUp(change) {
			t.Error("nothing is given up of what the kernel has not")
		}
		if k.pages(n, k.glance(n), false) != 0 {
			t.Error("pages are kept of what is not held under the lease")
		}
		open(0)
		n.gone = true
		k.forget(n)
		if len(k.of) != 0 {
			t.Error("the book has an inode that the kernel has forgotten")
		}
	})
}

// While a handle reads through pages each revocation takes back those that the kernel may
// have: a mapping reads them without asking anything that the book would note.
func TestBookOfPagesWhileTheyAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		n := &toldInode{ino: 7}
		change := client.Revocation{Inodes: []uint64{7}}
		k.opened(n, 1)
		for i := range 3 {
			k.revoked(change)
			n.told(t, 0, i+1)
		}
		k.revoked(client.Revocation{All: true})
		n.told(t, 0, 4)
		if k.givesUp(change) {
			t.Error("a handler tells the kernel to drop pages")
		}
		k.closed(7)
		k.revoked(change)
		n.told(t, 0, 4)
	})
}

// The kernel is told of an inode that it does not know yet until it does.
func TestBookOfUnknownInodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		n := &toldInode{ino: 7, unknown: 3}
		k.attrs(n, k.glance(n), time.Hour)
		k.revoked(client.Revocation{Inodes: []uint64{7}})
		n.told(t, 0, 1)

		n.unknown = 1 << 30
		k.attrs(n, k.glance(n), time.Hour)
		began := time.Now()
		k.revoked(client.Revocation{Inodes: []uint64{7}})
		if d := time.Since(began); d != 10*time.Second {
			t.Error("the kernel was told for", d)
		}
		synctest.Wait()
	})
}

// An inode that the kernel forgets while it is being looked at is given nothing that
// nobody could take back.
func TestBookOfForgottenInodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		n := &toldInode{ino: 7, gone: true}
		g := k.glance(n)
		k.forget(n)
		if d := k.attrs(n, g, time.Hour); d != 0 {
			t.Error("attributes are given for", d)
		}
		if flags := k.pages(n, g, true); flags != 0 {
			t.Errorf("pages are given: %x", flags)
		}
		k.revoked(client.Revocation{Inodes: []uint64{7}})
		n.told(t, 0, 0)
	})
}

// An inode that was forgotten, changed elsewhere and is asked about again is not as it was seen before,
// for whoever still has what he saw then.
func TestBookOfInodesThatComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		for what, strike := range map[string]func(){
			"revoked":   func() { k.revoked(client.Revocation{Inodes: []uint64{7}}) },
			"given up":  func() { k.givesUp(client.Revocation{Inodes: []uint64{7}}) },
			"the lease": func() { k.revoked(client.Revocation{Lease: true}) },
		} {
			n := &toldInode{ino: 7, gone: true}
			g := k.glance(n)
			k.forget(n)
			strike()
			if k.glance(&toldInode{ino: 7}) == g {
				t.Errorf("%s: it seems to be as it was", what)
			}
			k.forget(n)
		}
	})
}

func TestBookOfNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newBook(t.Context(), 10*time.Second)
		name, other := client.RevokedName{Dir: 1, Name: "a"}, client.RevokedName{Dir: 1, Name: "b"}
		change := client.Revocation{Names: []client.RevokedName{name}}
		yes, no := func() bool { return true }, func() bool { return false }
		given := func(name client.RevokedName, holds func() bool, want time.Duration) {
			t.Helper()
			if got := k.name(name, holds); got != want {
				t.Errorf("the name may be believed for %s, want %s", got, want)
			}
		}
		given(name, yes, 0) // the kernel has no epochs
		epochs, mounted := 0, false
		var err error
		k.names.start(func() error { epochs++; return err }, func() bool { return mounted }, time.Minute)
		k.revoked(change)
		given(name, no, 0)
		given(name, yes, maxAttrTime)
		if k.givesUp(change) {
			t.Error("a handler begins an epoch")
		}
		k.revoked(client.Revocation{Names: []client.RevokedName{other}})
		if epochs != 0 {
			t.Error("an epoch began for a name that was not given")
		}
		k.revoked(change)
		if epochs != 1 {
			t.Error(epochs, "epochs have begun")
		}
		given(name, yes, 0) // it is quiet
		<-time.After(time.Minute)
		given(name, yes, maxAttrTime)
		for _, broken := range []func(){func() { mounted = true }, func() { mounted, err = false, errors.New("no") }} {
			broken()
			began := time.Now()
			k.revoked(client.Revocation{All: true})
			if d := time.Since(began); d != 2*maxAttrTime {
				t.Error("without an epoch it took", d)
			}
			<-time.After(time.Minute)
			given(name, yes, maxAttrTime)
		}
	})
}
