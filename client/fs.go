package client

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FS is a namespace as one session of one client sees it. A program needs one.
// It is safe for concurrent use. Errors of its methods are *Error with
// operation and path; besides the kinds that a method names, each may return
// Unavailable (no active namenode within Config.Timeout), Retry (safe mode or
// overload for as long), Permission, InvalidPath, NameTooLong, Canceled and
// Deadline (of the context), and Closed.
type FS struct {
	cfg    Config
	nn     *namecall.Namenodes
	caller *pb.Caller // shared by all requests, never changed
	ids    *namecall.IDs
	blobs  *blockio.Transport
	info   Info // as far as it never changes

	welcome atomic.Pointer[pb.Welcome]
	soft    atomic.Int64 // limits of a lease; time.Duration
	hard    atomic.Int64
	line    atomic.Pointer[line]          // the session stream, while it is up
	ready   chan struct{}                 // closed at the first Welcome
	refused chan error                    // what makes New fail at once
	told    atomic.Pointer[fserror.Error] // why there is no stream, by a namenode

	noSession atomic.Pointer[noSession] // why there was none, last; for OnWait

	ctx        context.Context // ends last in Close
	cancel     context.CancelFunc
	renewCtx   context.Context // ends when no writer is left
	stopRenew  context.CancelFunc
	wg         sync.WaitGroup // goroutines of the FS itself
	background sync.WaitGroup // the renewer and the watchdog
	wake       chan struct{}  // the renewer: now
	left       atomic.Bool    // no stream is opened any more

	mu        sync.Mutex
	closed    bool
	writers   map[openKey]*Writer
	readers   map[*Reader]struct{}
	version   uint64 // of the set of writers
	confirmed uint64 // the version that the namenode has
	resend    bool   // the namenode wants the set
	jeopardy  bool   // the lease is past its soft limit, and said so

	cache   *readCache // nil: nothing is kept
	drafts  drafts
	closes  *closes // of drafts
	keeper  *keeper // of granted leases
	scratch scratch // for files made under a temporary name

	stats counters
}

// openKey names one opening of a file for write.
type openKey struct{ inode, epoch uint64 }

// New connects to a namespace and opens a session. It retries until the
// context ends or Config.Timeout is over: kind Unavailable then, naming the
// addresses tried; or for five seconds if no host of Config.Namenodes exists.
// InvalidArgument: the configuration makes no sense.
// The context governs New alone. Close ends what New began.
func New(ctx context.Context, cfg Config) (*FS, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	session := make([]byte, 16)
	_, _ = rand.Read(session) // never fails
	f := &FS{
		cfg:    cfg,
		caller: &pb.Caller{User: cfg.User, Client: cfg.Client, Session: session, Host: cfg.Host, Pid: cfg.PID, TtlMs: ceilMS(cfg.TTL)},
		ids:    namecall.NewIDs(session),
		blobs:  blockio.NewTransport(cfg.HTTPClient, cfg.TLS, cfg.Timeout),
		info:   Info{User: cfg.User, Client: cfg.Client, Session: hex.EncodeToString(pb.SessionName(session)), DirMode: 0o777 &^ *cfg.Umask},
		ready:  make(chan struct{}), refused: make(chan error, 1), wake: make(chan struct{}, 1),
		writers: make(map[openKey]*Writer), readers: make(map[*Reader]struct{}),
	}
	f.keeper = newKeeper(f)
	f.cache = newReadCache(&cfg)
	f.closes = &closes{f: f, slow: slowClose}
	f.scratch = scratch{f: f, one: semaphore.NewWeighted(1)}
	f.ctx, f.cancel = context.WithCancel(context.WithoutCancel(ctx))
	nn := cfg.namenodes(f.caller)
	nn.Inactive = f.kickSession
	if f.nn, err = namecall.New(f.ctx, nn); err != nil {
		f.cancel()
		return nil, err
	}
	f.renewCtx, f.stopRenew = context.WithCancel(f.ctx)
	f.wg.Go(f.keepSession)
	if err := f.awaitWelcome(ctx); err != nil {
		f.shutdown()
		return nil, err
	}
	f.background.Go(f.renewLoop)
	f.background.Go(f.watchLoop)
	return f, nil
}

func (f *FS) awaitWelcome(ctx context.Context) error {
	t := time.NewTimer(f.cfg.Timeout)
	defer t.Stop()
	var note <-chan time.Time
	if f.cfg.OnWait != nil {
		tick := time.NewTicker(namecall.WaitNote)
		defer tick.Stop()
		note = tick.C
	}
	w := f.nn.Waits("connect", "")
	var why error
	for why == nil {
		select {
		case <-f.ready:
			return nil
		case err := <-f.refused:
			return fserror.With(err, "connect", "")
		case <-ctx.Done():
			if context.Cause(ctx) == context.Canceled { //nolint:errorlint // exactly the plain cancellation
				return fserror.Ended(ctx, "connect", "")
			}
			why = context.Cause(ctx)
		case <-t.C:
			why = fserror.New(fserror.Deadline, "", "", "no answer within %s", f.cfg.Timeout)
		case <-note:
			if s := f.noSession.Load(); s != nil {
				w.Tell(s.err, s.answered)
			} else {
				w.Tell(nil, false)
			}
		}
	}
	if e := f.told.Load(); e != nil { // by one of them
		why = fmt.Errorf("%w; last: %s", why, namecall.Plain(e))
	} else if s := f.noSession.Load(); s != nil {
		why = fmt.Errorf("%w; last: %s", why, namecall.Plainly(s.err))
	}
	return fserror.New(fserror.Unavailable, "connect", "", "no active namenode at %s (%v); start one with leasefs namenode, or name it with --namenode or LEASEFS_NAMENODE", f.nn, why)
}

// Close flushes and closes all open writers and readers, lets those that are
// being closed finish, ends the session and waits until no goroutine of the FS
// is left. Its error joins those of the writers; one that could not be closed
// is recovered by the namenode at the hard limit. A second Close is of kind
// Closed.
func (f *FS) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return fserror.New(fserror.Closed, "close", "", "the client is closed already")
	}
	f.closed = true
	writers := make([]*Writer, 0, len(f.writers))
	for _, w := range f.writers {
		writers = append(writers, w)
	}
	readers := make([]*Reader, 0, len(f.readers))
	for r := range f.readers {
		readers = append(readers, r)
	}
	f.mu.Unlock()

	for _, r := range readers {
		_ = r.Close() // of a reader: nothing to lose
	}
	var g errgroup.Group
	g.SetLimit(16)
	errs := make([]error, len(writers))
	for i, w := range writers {
		g.Go(func() error {
			if err := w.Close(); !errors.Is(err, fserror.Closed) {
				errs[i] = err
				return nil
			}
			<-w.done // another is closing it
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	f.scratch.end()
	f.stopRenew()
	f.background.Wait()
	f.leave()
	f.shutdown()
	return errors.Join(errs...)
}

// leave ends the session's stream in order, which says that nothing is kept any
// more: so nobody waits for this client. Only a client that ends otherwise is
// waited for.
func (f *FS) leave() {
	if f.cache != nil {
		f.cache.Close()
		f.revoked(Revocation{All: true})
	}
	f.left.Store(true)
	if l := f.line.Load(); l != nil {
		l.end()
	}
}

// shutdown ends what New began, once nobody needs it.
func (f *FS) shutdown() {
	f.stopRenew()
	f.mu.Lock()
	f.cancel()
	f.mu.Unlock() // no goroutine starts from here on
	f.nn.Close()
	f.wg.Wait()
	f.background.Wait()
	f.blobs.Close()
}

// goRun starts a goroutine that Close waits for; false if it is too late.
func (f *FS) goRun(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	f.wg.Go(fn)
	return true
}

// clean checks a path before anything is sent.
func clean(op, path string) (string, error) {
	p, err := fspath.Clean(path)
	if err != nil {
		return "", fserror.With(err, op, path)
	}
	return p, nil
}
