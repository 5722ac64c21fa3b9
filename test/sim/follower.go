package sim

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// follower watches the whole namespace from its beginning and keeps a list of what
// is there by events alone. An event that does not fit the list, or a list that is
// wrong in the end, shows one that was lost, told twice or told out of order.
type follower struct {
	c  *worker
	mu sync.Mutex
	// there are the paths of all that is there.
	there map[string]bool
	txid  uint64
	loose uint64 // up to this change the list may have more than the watch has told
	over  bool
}

func newFollower(w *Work) *follower {
	c := newWorker(w, 0)
	c.name, c.plain = "watch", true
	c.host = w.with.Host(c.name)
	return &follower{c: c, there: map[string]bool{}}
}

// begin returns when the watch is set.
func (f *follower) begin(ctx context.Context) error {
	if err := f.c.connect(ctx); err != nil {
		return err
	}
	ctx = context.WithoutCancel(ctx)
	w, err := f.c.fs.Watch(ctx, "/", client.WatchOptions{Recursive: true})
	if err != nil {
		return err
	}
	f.c.w.running.Go(func() {
		for w != nil {
			w = f.follow(ctx, w)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over = true
	})
	return nil
}

// follow takes what a watch tells. A watch that is told TooOld, since who took
// over does not know the changes before its image, gives its place to another.
func (f *follower) follow(ctx context.Context, w *client.Watcher) *client.Watcher {
	defer w.Close()
	for {
		events, err := w.Next()
		if errors.Is(err, fserror.TooOld) {
			return f.again(ctx)
		}
		if err != nil {
			return nil
		}
		f.mu.Lock()
		if w.TxID() < f.txid {
			f.c.w.truth.broken("the watch goes back from %d to %d", f.txid, w.TxID())
		}
		f.txid = w.TxID()
		for _, e := range events {
			f.apply(e)
		}
		f.mu.Unlock()
	}
}

// again lists all and watches from where the listing began: docs/CLI.md has the
// recipe. What changed during the listing is told once more.
func (f *follower) again(ctx context.Context) *client.Watcher {
	for {
		there, first, last, err := f.list(ctx)
		var w *client.Watcher
		if err == nil {
			w, err = f.c.fs.Watch(ctx, "/", client.WatchOptions{Recursive: true, From: first + 1})
		}
		if err == nil {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.there, f.txid, f.loose = there, first, last
			f.c.w.truth.did("list again")
			return w
		}
		if errors.Is(err, fserror.Closed) {
			return nil
		}
		f.c.w.log.note(f.c.name, "list again: %v", err)
		f.c.pause(ctx, time.Second)
	}
}

// list returns all paths, as they were at one time or another between two changes.
func (f *follower) list(ctx context.Context) (there map[string]bool, first, last uint64, err error) {
	before, err := f.c.fs.Stat(ctx, "/")
	if err != nil {
		return nil, 0, 0, err
	}
	there, last = map[string]bool{}, before.TxID
	for e, err := range f.c.fs.Find(ctx, "/", client.FindOptions{}) {
		if err != nil {
			return nil, 0, 0, err
		}
		if last = max(last, e.TxID); e.Path != "/" {
			there[e.Path] = true
		}
	}
	return there, before.TxID, last, nil
}

// apply holds an event against the list and changes that. The lock is held.
func (f *follower) apply(e client.Event) {
	wrong := func(what string) {
		if e.TxID <= f.loose {
			return
		}
		f.c.w.truth.broken("watch, txid %d: %v %s %s: %s", e.TxID, e.Type, e.Path, e.NewPath, what)
	}
	switch e.Type {
	case client.EventCreate:
		if f.there[e.Path] {
			wrong("it is there")
		}
		f.there[e.Path] = true
	case client.EventDelete:
		if !f.there[e.Path] {
			wrong("it is not there")
		}
		f.move(e.Path, "")
	case client.EventRename:
		if !f.there[e.Path] {
			wrong("it is not there")
		}
		f.move(e.Path, e.NewPath)
	}
}

// move gives a path and all below it another one; an empty one removes them.
func (f *follower) move(from, to string) {
	for p := range f.there {
		if rest, ok := strings.CutPrefix(p, from); ok && (rest == "" || rest[0] == '/') {
			delete(f.there, p)
			if to != "" {
				defer func() { f.there[to+rest] = true }()
			}
		}
	}
}

// check makes a last change, waits until the watch has told of it, and holds the
// list against what is there.
func (f *follower) check(ctx context.Context, when, mark string) {
	if f.c.fs == nil {
		return
	}
	for {
		err := f.c.fs.WriteFile(ctx, mark, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, fserror.NoSpace) || ctx.Err() != nil { // that there is room again shows after a moment
			f.c.w.truth.broken("%s: write %s: %v", when, mark, err)
			return
		}
		f.c.pause(ctx, time.Second)
	}
	for {
		f.mu.Lock()
		over, told := f.over, f.there[mark]
		f.mu.Unlock()
		if over {
			return
		}
		if told {
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			f.c.w.truth.broken("%s: the watch does not tell of %s", when, mark)
			return
		}
	}
	now, _, _, err := f.list(ctx)
	if err != nil {
		f.c.w.truth.broken("%s: list: %v", when, err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range f.there {
		if !now[p] {
			f.c.w.truth.broken("%s: by the watch %s is there, and it is not", when, p)
		}
	}
	for p := range now {
		if !f.there[p] {
			f.c.w.truth.broken("%s: %s is there, and the watch has not told of it", when, p)
		}
	}
}
