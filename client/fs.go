package client

import (
	"context"
	"encoding/hex"
	"errors"
	"maps"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/blockcache"
	"github.com/leasefs/leasefs/internal/blockio"
	"github.com/leasefs/leasefs/internal/delegation"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/giveback"
	"github.com/leasefs/leasefs/internal/keepalive"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/session"
	"github.com/leasefs/leasefs/internal/tracing"
	"github.com/leasefs/leasefs/internal/turn"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// FS is a namespace as one session of one client sees it. A program needs one.
// It is safe for concurrent use. Errors of its methods are *Error with
// operation and path; besides the kinds that a method names, each may return
// Unavailable (no active namenode within Config.Timeout), Retry (safe mode or
// overload for as long), Permission, InvalidPath, NameTooLong, Canceled and
// Deadline (of the context), and Closed.
type FS struct {
	*engine
	scratch scratch // for files made under a temporary name
}

// engine is what all calls of a session share: the way to the namenodes, what is
// open and what has been read. An FS shows it by path, the door to low-level calls
// by inode too; Writers, Readers and Watchers hold it.
type engine struct {
	cfg    Config
	nn     *namecall.Namenodes
	caller *pb.Caller // shared by all requests, never changed
	ids    *namecall.IDs
	blobs  *blockio.Transport
	near   *blockcache.Cache // nil if there is none
	info   Info              // as far as it never changes

	ctx    context.Context // ends last in Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // goroutines of the FS itself

	mu      sync.Mutex // guards the two below, and that no goroutine starts after the end
	closed  bool
	readers map[*Reader]struct{}

	session *session.Session
	*answers
	delegations *delegation.Table[*Writer]
	keeper      *keepalive.Keeper
	giveback    *giveback.Table
}

// New connects to a namespace and opens a session. It retries until the
// context ends or Config.Timeout is over: kind Unavailable then, naming the
// addresses tried; or for five seconds if no host of Config.Namenodes exists.
// InvalidArgument: the configuration makes no sense; that, NotFound, NotDirectory,
// Permission or Unsupported, before anything is asked: Config.BlockCache cannot be used.
// The context governs New alone. Close ends what New began.
func New(ctx context.Context, cfg Config) (*FS, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.learnUser(ctx); err != nil {
		cfg.prover.Close()
		return nil, err
	}
	id := pb.NewSession(cfg.User)
	e := &engine{
		cfg:     cfg,
		caller:  &pb.Caller{User: cfg.User, RealUser: cfg.RealUser, Client: cfg.Client, Session: id, Host: cfg.Host, Pid: cfg.PID, TtlMs: ceilMS(cfg.TTL), Xattr: cfg.Xattr},
		blobs:   blockio.NewTransport(cfg.HTTPClient, cfg.TLS, cfg.prover.Roots, cfg.Timeout),
		info:    Info{User: cfg.User, Client: cfg.Client, Session: hex.EncodeToString(pb.SessionName(id)), DirMode: 0o777 &^ *cfg.Umask},
		readers: make(map[*Reader]struct{}),
	}
	e.answers = &answers{cache: newReadCache(&cfg), stream: func() *session.Stream { return e.session.Stream() }, onRevoke: cfg.OnRevoke, onGiveUp: cfg.OnGiveUp}
	if cfg.BlockCache != "" {
		e.near, err = blockcache.Open(blockcache.Config{Dir: cfg.BlockCache, Size: cfg.BlockCacheSize, Logger: cfg.Logger})
		if err != nil {
			cfg.prover.Close()
			return nil, err
		}
	}
	f := &FS{engine: e}
	f.scratch = scratch{f: f, turn: turn.New()}
	f.ctx, f.cancel = context.WithCancel(tracing.Without(context.WithoutCancel(ctx)))
	nn := cfg.namenodes(f.caller)
	nn.Inactive = func(n *namecall.Node) { f.session.Drop(n) }
	if f.nn, err = namecall.New(f.ctx, nn); err != nil {
		f.cancel()
		e.near.Close()
		cfg.prover.Close()
		return nil, err
	}
	f.goRun(func() { cfg.prover.Keep(f.ctx) })
	f.ids = f.nn.IDs()
	f.delegations = newDelegations(f.engine)
	f.keeper = keepalive.New(f.ctx, keepalive.Config{
		Namenodes: f.nn, Caller: f.caller, Clock: cfg.Clock, Logger: cfg.Logger, Go: f.goRun,
	})
	f.session = session.New(f.ctx, f.sessionConfig())
	f.giveback = giveback.New(f.ctx, giveback.Config{Namenodes: f.nn, Session: f.session, Caller: f.caller, Logger: cfg.Logger, Go: f.goRun})
	err = f.session.Open(ctx)
	if err == nil {
		err = e.near.Use(f.session.Welcome().GetNamespaceId())
	}
	if err != nil {
		f.shutdown()
		return nil, err
	}
	return f, nil
}

func (f *engine) sessionConfig() session.Config {
	cfg := session.Config{
		Namenodes: f.nn, Addresses: f.cfg.Namenodes, Caller: f.caller, Timeout: f.cfg.Timeout,
		Clock: f.cfg.Clock, Logger: f.cfg.Logger,
	}
	if f.cache != nil {
		cfg.Cache = &cacheStream{f: f}
	}
	return cfg
}

// Close flushes and closes all open writers and readers, lets those that are
// being closed finish, and for three seconds the cancelling of calls that have ended
// without an answer and may have opened a file, ends the session and waits until no goroutine of the FS
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
	readers := maps.Clone(f.readers)
	f.mu.Unlock()
	writers := f.session.CloseFiles()

	for r := range readers {
		_ = r.Close() // of a reader: nothing to lose
	}
	var g errgroup.Group
	g.SetLimit(256) // while no namenode answers each takes as long as a call may
	errs := make([]error, len(writers))
	for i, file := range writers {
		w := file.(openFile).Writer //nolint:errcheck,forcetypeassert // nobody else adds any
		g.Go(func() error {
			if errs[i] = w.Close(); errors.Is(errs[i], fserror.Closed) {
				<-w.done // another is closing it
				errs[i] = w.unclosed
			}
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	f.giveback.Wait(closeGrace)
	f.scratch.end()
	if f.cache != nil {
		f.cache.Close()
		f.revoked(Revocation{All: true})
	}
	f.session.Leave()
	f.shutdown()
	return errors.Join(errs...)
}

// shutdown ends what New began, once nobody needs it.
func (f *engine) shutdown() {
	f.mu.Lock()
	f.cancel()
	f.mu.Unlock() // no goroutine starts from here on
	f.nn.Close()
	f.session.Close()
	f.wg.Wait()
	f.cfg.prover.Close()
	f.blobs.Close()
	f.near.Close()
}

// goRun starts a goroutine that Close waits for; false if it is too late.
func (f *engine) goRun(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ctx.Err() != nil {
		return false
	}
	f.wg.Go(fn)
	return true
}

// cleanRef checks a reference before anything is sent.
func cleanRef(op string, r door.Ref) (_ door.Ref, err error) {
	switch {
	case r.Base == 0:
		r.Path, err = clean(op, r.Path)
	case r.Path != "":
		err = fserror.With(fspath.CheckName(r.Path), op, r.Path)
	}
	return r, err
}

// clean checks a path before anything is sent.
func clean(op, path string) (string, error) {
	p, err := fspath.Clean(path)
	if err != nil {
		return "", fserror.With(err, op, path)
	}
	return p, nil
}
