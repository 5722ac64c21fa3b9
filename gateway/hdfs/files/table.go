package files

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode/share"
)

// Table is what a gateway has open. It is safe for concurrent use.
//
// u is who asks, and name that of the Hadoop client. Errors are those of package client;
// besides what a method names:
//
//   - Held: another holder writes the file, or the same client already does.
//   - LeaseLost, LeaseLostGone: the client does not write that file, any more or at all.
//   - InvalidArgument: a block is none of the file's, or not the last one.
//
// A method that takes an inode (HDFS's fileId) uses the path for errors only, so that a
// rename does not disturb a writer; where it is 0, the path counts.
type Table struct {
	cfg    Config
	places *share.Limit

	mu     sync.Mutex
	byFile map[uint64]*file // by inode
	closed bool
	again  singleflight.Group // files that are being opened again

	endings   endings
	dropped   endings // of files that were lost with bytes which were not known to be durable: see closeTried
	cut       endings // of files that were closed without bytes of their clients: as above
	asked     *asked
	short     sync.Once // for the log
	began     time.Time
	closeTime time.Duration
	askTime   time.Duration
}

// New returns a Table with nothing open, which has to be closed.
func New(cfg Config) *Table {
	cfg.Open = cmp.Or(cfg.Open, DefaultOpen)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if len(cfg.Key) == 0 {
		cfg.Key = make([]byte, 32)
		_, _ = rand.Read(cfg.Key) // it never fails
	}
	return &Table{cfg: cfg, places: share.New(int64(cfg.Open)), byFile: map[uint64]*file{}, asked: newAsked(), closeTime: closeTime, askTime: askTime, began: cfg.Now()}
}

// closeTime is for how long a file's close is tried before its client is told to ask again.
const closeTime = 30 * time.Second

// askTime is for how long the namenode is asked whether a file was closed.
const askTime = 10 * time.Second

// Flush makes durable what has arrived of all files, until the context ends.
func (t *Table) Flush(ctx context.Context) {
	each(t.all(anyFile), func(f *file) {
		if f.w.Durable() == f.w.Length() {
			return
		}
		if err := f.w.Flush(ctx); err != nil && !errors.Is(err, fserror.LeaseLost) {
			t.cfg.Logger.Warn("what a client had written was not made durable at the gateway's end", "path", f.path, "client", f.holder.Client, "cause", err)
		}
	})
}

func anyFile(*file) bool { return true }

// each does something for all of the files, for several at once.
func each(all []*file, do func(f *file)) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, 16)
	for _, f := range all {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			do(f)
		})
	}
	wg.Wait()
}

// Close makes durable what has arrived, and lets go of all files. They stay open for
// their clients, who may continue by way of another gateway until their leases end. The
// context limits how long it tries. It has to be called before the sessions are closed.
func (t *Table) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.Flush(ctx)
	each(t.all(anyFile), func(f *file) {
		f.hangUp()
		_ = f.w.Detach() // it is lost, or stays its holder's
		t.forget(f)
	})
}

// writing is who may open one more file, with the session that will hold it.
type writing struct {
	u     *users.User
	leave func() // gives back the place and the session
}

// leastSoft is the shortest soft limit of the namenode with which Hadoop's clients keep their
// files: they renew their leases each 30 s.
const leastSoft = 45 * time.Second

// place takes a place for one more open file, and the session of a client.
func (t *Table) place(ctx context.Context, op, path string, key users.Key) (*writing, error) {
	if key.Client == "" {
		return nil, fserror.New(fserror.InvalidArgument, op, path, "the request does not say which client it is from")
	}
	who := share.User(key.User)
	if !t.places.Take(1, who) {
		t.endSilent(ctx, key.User, who)
		if !t.places.Take(1, who) {
			return nil, fserror.New(fserror.Retry, op, path, "%d files are open for write, as many as the gateway allows; try again later, or allow more", t.places.Used())
		}
	}
	u, err := t.cfg.Users.Get(ctx, key)
	if err != nil {
		t.places.Give(1, who)
		return nil, err
	}
	u.FS.Vouch()
	if soft := u.FS.Info().SoftLimit; soft < leastSoft {
		t.short.Do(func() {
			t.cfg.Logger.Warn("the namenode's soft limit takes files from writers that live: Hadoop's clients renew their leases each 30 s (docs/HADOOP.md, Limits of hdfs://)", "limit", soft, "least", leastSoft)
		})
	}
	return &writing{u, sync.OnceFunc(func() {
		t.cfg.Users.Release(u)
		t.places.Give(1, who)
	})}, nil
}

// add keeps a file that was opened just now.
func (t *Table) add(p *writing, w *client.Writer, path string, a hadoop.Attr, resumed bool) (*file, error) {
	f := &file{table: t, holder: p.u.Key, u: p.u, w: w, path: path, attr: a, leave: p.leave, resumed: resumed}
	f.hear()
	f.stamp = int64(w.Token()) << stampShift //nolint:gosec // checked below
	if w.Token() >= 1<<(63-stampShift) || w.Inode() >= 1<<(63-indexBits) {
		err := fserror.New(fserror.Unsupported, "open", path, "inode %d and epoch %d do not fit the numbers that blocks of HDFS have", w.Inode(), w.Token())
		return nil, errors.Join(err, w.Abort())
	}
	if !numbered(w.Length(), a.BlockSize) {
		err := fserror.New(fserror.TooLarge, "open", path, "a file has at most %d blocks, and this one has more, of %d bytes; write it with larger ones", maxIndex+1, a.BlockSize)
		w.KeepModTime()
		return nil, errors.Join(err, w.Abort())
	}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		_ = w.Detach()
		return nil, fserror.New(fserror.Retry, "open", path, "the gateway is ending; ask another one, or try again later")
	}
	old := t.byFile[w.Inode()]
	t.byFile[w.Inode()] = f
	t.mu.Unlock()
	if old != nil { // it has lost the file, and is about to learn of it
		t.dropLost(old)
	}
	context.AfterFunc(w.Context(), func() {
		if errors.Is(context.Cause(w.Context()), fserror.LeaseLost) {
			t.dropLost(f)
		}
	})
	return f, nil
}

// dropLost lets go of a file whose lease is lost. The connection of its writer ends when he sends
// more, and not before: one who has nothing to send asks to complete the file, and learns the
// reason, which a connection for bytes cannot say.
func (t *Table) dropLost(f *file) {
	t.noteDropped(f, true) // first: who does not find the file any more looks for that
	if !t.forget(f) {
		return
	}
	_ = f.w.Abort() // there is nothing to close
}

// forget takes a file out, once.
func (t *Table) forget(f *file) bool {
	t.mu.Lock()
	mine := t.byFile[f.w.Inode()] == f
	if mine {
		delete(t.byFile, f.w.Inode())
	}
	t.mu.Unlock()
	if f.gone.CompareAndSwap(false, true) {
		f.leave()
		return true
	}
	return false
}

// open returns a file that is open here, whoever has it; nil: none.
func (t *Table) open(inode uint64) *file {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byFile[inode]
}

// InUse tells how many files are open for write.
func (t *Table) InUse() int64 { return t.places.Used() }

// lost is the error of who does not write a file.
func lost(op, path, format string, args ...any) error {
	return fserror.New(fserror.LeaseLost, op, path, format, args...)
}

// find returns the file that a client writes. If it is not open here but the namenode has
// it for that client, an earlier gateway had it: it is opened again, and continues at what
// was durable.
func (t *Table) find(ctx context.Context, op string, u *users.User, name, path string, inode uint64) (*file, error) {
	if inode == 0 {
		i, err := u.FS.Stat(ctx, path)
		if err != nil {
			return nil, gone(err, op, path)
		}
		inode = i.Inode
	}
	key := users.Key{User: u.User, Client: name}
	if f := t.open(inode); f != nil {
		if f.holder != key {
			if f.holder.User != u.User { // who may not even find the file learns nothing of its writer
				return nil, lost(op, path, "client %s does not write the file: it was closed, recovered or taken over", name)
			}
			return nil, lost(op, path, "client %s does not write the file; client %s of user %s does", name, f.holder.Client, f.holder.User)
		}
		f.hear()
		return f, nil
	}
	i, _, err := u.FS.LstatKept(ctx, lowlevel.Inode(inode))
	if err != nil {
		return nil, gone(err, op, path)
	}
	if i.Open == nil || i.Open.Holder.Client != name || i.Open.Holder.User != u.User {
		return nil, lost(op, path, "client %s does not write the file: it was closed, recovered or taken over", name)
	}
	got, err, _ := t.again.Do(strconv.FormatUint(inode, 10)+" "+u.User+"\x00"+name, func() (any, error) {
		if f := t.open(inode); f != nil && f.holder == key {
			return f, nil
		}
		return t.resume(context.WithoutCancel(ctx), op, key, path, i)
	})
	if err != nil {
		return nil, elsewhere(err, op, path, key)
	}
	return got.(*file), nil //nolint:errcheck,forcetypeassert // what was put there
}

// elsewhere gives the error that a file is held by the client himself, by another gateway that
// lives, the kind that has him ask again: that gateway hears nothing of him any more, so
// the file is his by this one once the namenode's soft limit is over.
func elsewhere(err error, op, path string, key users.Key) error {
	var e *fserror.Error
	if !errors.As(err, &e) || e.Kind != fserror.Held || e.Holder == nil || e.Holder.User != key.User || e.Holder.Client != key.Client {
		return err
	}
	again := fserror.New(fserror.Retry, op, path, "another gateway has the file open for this client, and lives; this one can have it in %s, if the client does not use the other one", max(e.TakeableIn, 0).Round(time.Second))
	again.RetryAfter = e.TakeableIn
	return again
}

// gone gives the error that a file does not exist the kind that its writer understands.
func gone(err error, op, path string) error {
	if fserror.KindOf(err) == fserror.NotFound {
		return fserror.New(fserror.LeaseLostGone, op, path, "the file does not exist: it was deleted or replaced")
	}
	return err
}

// resume opens a file again that a client of that name writes by what an earlier gateway
// had. The namenode lets it if that one is gone.
func (t *Table) resume(ctx context.Context, op string, key users.Key, path string, i *client.FileInfo) (*file, error) {
	p, err := t.place(ctx, op, path, key)
	if err != nil {
		return nil, err
	}
	w, err := p.u.FS.AppendInode(ctx, i.Inode, path, true, client.WithWait(repeatTime))
	if err != nil {
		p.leave()
		return nil, err
	}
	f, err := t.add(p, w, path, hadoop.AttrOf(i), true)
	if err != nil {
		p.leave()
		return nil, err
	}
	t.cfg.Logger.Info("a client continues a file that another gateway had open", "path", path, "client", key.Client, "user", key.User, "bytes", w.Length())
	return f, nil
}
