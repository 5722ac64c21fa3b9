package fuse

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"
)

// modelInode is a file in a model of the kernel, which takes attributes in only if it
// has done nothing of the kind since it asked for them.
type modelInode struct {
	k       *kernelCache
	version uint64 // of the attributes in the kernel
	size    int64  // that the kernel believes in
	truth   int64  // that the file has
	grown   int    // how often a notification grew it
	log     []string
}

func (n *modelInode) number() uint64  { return 1 }
func (n *modelInode) forgotten() bool { return false }

func (n *modelInode) drop(bool) syscall.Errno {
	n.version++
	return 0
}

func (n *modelInode) grow(_ context.Context, size int64) bool {
	n.grown++
	n.version++
	n.size = max(n.size, size)
	return true
}

// modelThread is a thread that asks for attributes: to read, because it looks the file
// up, to know them; or it changes the file.
type modelThread struct {
	thread uint32
	does   string
	next   int // step
	began  int64
	asked  uint64 // the kernel's version then
	modelQuestion
}

// modelQuestion is what the mount has of a question.
type modelQuestion struct {
	question question
	looked   int64
}

// step lets a thread, the mount or the kernel do one thing for that thread. It returns
// what is wrong then.
func (n *modelInode) step(ctx context.Context, th *modelThread, what []string, rnd *rand.Rand) (wrong string) {
	switch th.next++; th.next {
	case 1: // the kernel
		th.does, th.modelQuestion, th.began = what[rnd.IntN(len(what))], modelQuestion{}, n.truth
		if th.does == "read" {
			n.k.opened(n, th.thread)
		}
		th.asked = n.version
	case 2: // the mount
		if n.k.glance(n); th.does == "read" || th.does == "know" {
			th.question = n.k.asks(1, th.thread)
		}
	case 3:
		th.looked = n.truth
	case 4:
		switch {
		case th.does == "change":
			n.k.changes(ctx, 1, th.thread)
		case th.does == "look up" && n.k.notes(1, th.thread, th.looked):
		case th.does == "look up":
			th.does, th.next = "know", 1
		case !n.k.says(ctx, n, &th.question, th.looked):
			th.next = 2
		}
	case 5: // the kernel
		if th.does == "change" {
			n.version++
		} else if n.version == th.asked {
			n.version++
			n.size = th.looked
		}
		if th.does == "read" {
			n.k.closed(1)
			if n.size < th.began {
				wrong = fmt.Sprintf("a read that began when the file had %d bytes ends at %d", th.began, n.size)
			}
		}
		th.next = 0
	}
	n.log = append(n.log, fmt.Sprintf("%+v: kernel: version %d, size %d; file %d; book %+v", *th, n.version, n.size, n.truth, n.k.get(1).length))
	return wrong
}

// TestLengthsOfAModel: in whatever order threads, the mount and the kernel act, a read that
// begins after a file has grown does not end before its new end. A thread that is alone
// needs no notification for that.
func TestLengthsOfAModel(t *testing.T) {
	for seed := range uint64(10_000) {
		rnd := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test's choice
		n := &modelInode{k: newBook(t.Context(), time.Minute)}
		threads := make([]modelThread, 1+rnd.IntN(5))
		for i := range threads {
			threads[i].thread = uint32(i + 1) //nolint:gosec // few
		}
		what := []string{"read", "know", "look up", "change"}
		if len(threads) == 1 {
			what = what[:3]
		}
		n.k.notes(1, 1, 0)
		for range 80 {
			switch rnd.IntN(8) {
			case 0:
				n.truth += 10
			case 1:
				if len(threads) > 1 && rnd.IntN(4) == 0 {
					n.k.tell(n, true)
				}
			default:
				if wrong := n.step(t.Context(), &threads[rnd.IntN(len(threads))], what, rnd); wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, strings.Join(n.log, "\n"), wrong)
				}
			}
		}
		if len(threads) == 1 && n.grown > 0 {
			t.Fatalf("seed %d: the kernel was told %d times", seed, n.grown)
		}
	}
}
