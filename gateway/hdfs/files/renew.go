package files

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode/share"
)

const (
	// askEvery is how often the namenode is asked for files that a client who renews may have
	// open by an earlier gateway.
	askEvery = time.Minute
	// askSoon is when it is asked again if that has failed: before the next renewal of
	// Hadoop's clients, which renew each 30 s.
	askSoon = 10 * time.Second
	// maxResumed is how many of those are opened again at once.
	maxResumed = 100
	// maxAsked is how many clients are remembered for askEvery, a fair share of each user.
	maxAsked = 4096
)

// Renew notes that a user's client lives. Its leases go when it does not call this, and
// makes nothing durable, for the namenode's soft limit. An earlier gateway may have had files of
// the client: the first time, and where nothing is open here for it, those that the namenode
// has for it are opened again. What the client has given up closing is closed. What does not succeed
// is tried again by a later call.
func (t *Table) Renew(ctx context.Context, u *users.User, name string) {
	key := users.Key{User: u.User, Client: name}
	all := t.all(func(f *file) bool { return f.holder == key })
	for _, f := range all {
		f.hear()
		f.u.FS.Vouch()
	}
	t.closeLeft(ctx, all)
	if !t.asked.now(key, t.age(), len(all) == 0) {
		return
	}
	if err := t.resumeAll(ctx, u, key); err != nil {
		t.asked.failed(key)
		t.cfg.Logger.Debug("files that another gateway may have had open for a client were not all opened again", "client", name, "user", u.User, "cause", err)
	}
}

// all are the files that are open here and of which one is true.
func (t *Table) all(is func(f *file) bool) (some []*file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.byFile {
		if is(f) {
			some = append(some, f)
		}
	}
	return some
}

// hear notes that the client of a file was heard of. Setting the clock changes nothing of that.
func (f *file) hear() { f.heard.Store(int64(f.table.age())) }

// age is how long ago the Table was made.
func (t *Table) age() time.Duration { return t.cfg.Now().Sub(t.began) }

// endSilent lets go of the files of the client that has been silent for longest, and for longer
// than the namenode's soft limit, if there is one: of the user, or else of another whose places make
// room for him. What has arrived of them is made durable, and they stay their client's, who can come
// back to them.
func (t *Table) endSilent(ctx context.Context, user string, who share.Taker) {
	type session struct{ heard, files int64 }
	sessions := map[*users.User]session{}
	for _, f := range t.all(anyFile) {
		s := sessions[f.u]
		sessions[f.u] = session{max(s.heard, f.heard.Load()), s.files + 1}
	}
	var silent *users.User
	for u, s := range sessions {
		own := u.User == user
		if !t.isSilent(u, s.heard) || !own && !t.places.FitsOnce(s.files, 1, who) {
			continue
		}
		if silent == nil || own && silent.User != user || own == (silent.User == user) && s.heard < sessions[silent].heard {
			silent = u
		}
	}
	if silent == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recoverFlush) // others lose nothing if he hangs up
	defer cancel()
	for _, f := range t.all(func(f *file) bool { return f.u == silent }) {
		_ = f.w.Flush(ctx) // what cannot be kept was not acknowledged as kept
	}
	gone := t.takeOut(silent)
	for _, f := range gone {
		f.hangUp()
		t.noteDropped(f, true)
		_ = f.w.Detach() // it is lost, or stays its holder's
		t.forget(f)
	}
	if len(gone) > 0 {
		t.cfg.Logger.Info("a silent client gave its places for open files to others", "client", silent.Client, "user", silent.User)
	}
}

// isSilent tells whether a client who was heard of last then has been silent for longer than the
// namenode's soft limit.
func (t *Table) isSilent(u *users.User, heard int64) bool {
	return t.age()-time.Duration(heard) > u.FS.Info().SoftLimit
}

// takeOut takes the files of a session out, unless its client is back. A client who comes back from
// now on gets another session, by which the namenode gives him what he has open.
func (t *Table) takeOut(silent *users.User) (gone []*file) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.byFile {
		if f.u != silent {
			continue
		}
		if !t.isSilent(silent, f.heard.Load()) {
			return nil
		}
		gone = append(gone, f)
	}
	for _, f := range gone {
		delete(t.byFile, f.w.Inode())
	}
	if len(gone) > 0 {
		t.cfg.Users.Retire(silent)
	}
	return gone
}

// resumeAll opens again what the namenode has open for a client.
func (t *Table) resumeAll(ctx context.Context, u *users.User, key users.Key) error {
	const op = "renew lease"
	n := 0
	var failed error
	for l, err := range u.FS.Leases().List(ctx, client.LeaseFilter{Holder: key.Client, Open: true}) {
		if err != nil {
			return err
		}
		if l.Holder.User != key.User || l.Holder.Client != key.Client {
			continue
		}
		for _, at := range l.Files {
			if f := t.open(at.Inode); f != nil && f.holder == key {
				continue
			}
			if n == maxResumed {
				return fserror.New(fserror.Retry, op, at.Path, "%d files were opened again, as many as at once; a later renewal continues", n)
			}
			i, _, err := u.FS.LstatKept(ctx, lowlevel.Inode(at.Inode))
			if err != nil || i.Open == nil || i.Open.Epoch != at.Epoch {
				continue // it was closed or replaced meanwhile
			}
			_, err = t.find(ctx, op, u, key.Client, at.Path, at.Inode)
			switch {
			case fserror.Transient(err) || ctx.Err() != nil:
				return cmp.Or(err, context.Cause(ctx)) // so would the next ones
			case err == nil:
				n++
			}
			failed = cmp.Or(failed, err)
		}
	}
	return failed
}

// asked remembers for which clients the namenode was asked not long ago, by the Table's age. It is
// safe for concurrent use.
type asked struct {
	room *share.Limit
	mu   sync.Mutex
	when map[users.Key]once
}

func newAsked() *asked {
	return &asked{room: share.New(maxAsked), when: map[users.Key]once{}}
}

// once is when it was asked for a client, and whether that has failed.
type once struct {
	at     time.Duration
	failed bool
}

// isOver tells whether to ask once more. Again tells whether to do so after a success.
func (o once) isOver(now time.Duration, again bool) bool {
	if o.failed {
		return now-o.at >= askSoon
	}
	return again && now-o.at >= askEvery
}

// failed has a client be asked for again soon.
func (a *asked) failed(key users.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o, ok := a.when[key]; ok {
		o.failed = true
		a.when[key] = o
	}
}

// now tells whether to ask for a client now; then it is noted. If too many ask, some wait. Again
// tells whether to ask more than once.
func (a *asked) now(key users.Key, now time.Duration, again bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	who := share.User(key.User)
	o, known := a.when[key]
	switch {
	case known && !o.isOver(now, again):
		return false
	case known || a.room.Take(1, who):
	default:
		for k, o := range a.when {
			if o.isOver(now, true) {
				delete(a.when, k)
				a.room.Give(1, share.User(k.User))
			}
		}
		if !a.room.Take(1, who) {
			return false
		}
	}
	a.when[key] = once{at: now}
	return true
}
