package namenode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/blockstore"
	"github.com/leasefs/leasefs/blockstore/local"
	"github.com/leasefs/leasefs/fserror"
	"github.com/leasefs/leasefs/journal"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/cachelease"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/watch"
)

// Server is one running namenode.
type Server struct {
	cfg     Config
	log     *slog.Logger
	dir     *dataDir
	journal journal.Journal
	store   blockstore.Store
	leases  *leasemanager.Manager
	metrics *metrics
	images  *imageFolder

	// mu is the namespace lock: Apply and Clone under Lock, reads under RLock.
	// It is never held while waiting for a disk or a network.
	mu   sync.RWMutex
	tree *namespace.Tree

	waits     *waitTable // who waits for a file to be freed or to grow
	allocs    *allocTable
	sessions  sessionTable
	lost      lostTable
	caches    *cachelease.Table
	events    *watch.Hub
	watchers  atomic.Int64
	applied   atomic.Uint64 // last txid of which the events are known
	reaper    *rate.Limiter // of the ends of granted leases
	inFlight  atomic.Int64
	parked    atomic.Int64 // calls that wait for others, see park
	term      uint64
	activated time.Duration // by the clock's Mono
	pressure  pressure      // of disk and memory
	lastImage imageState
	collector collector
	unmerged  seldom        // what sealing logs
	older     chan struct{} // bounds the blocks read before a commit
	time      journalTime   // of records

	grpcLis, httpLis net.Listener
	grpcSrv          *grpc.Server
	httpSrv          *http.Server
	unused           unusedConns
	blockHandler     http.Handler

	ready    atomic.Bool
	stopping context.Context
	stop     context.CancelCauseFunc
	workers  sync.WaitGroup
	walkers  chan struct{} // bounds walks of the whole tree
	patience time.Duration // for a client to take a part of a long answer; see send

	reclaimWake chan struct{}
	publishWake chan struct{}
	reapWake    chan struct{}
}

// Start opens the data folder, brings the namespace back, takes the reign and
// serves. It returns once the namenode answers. The caller ends it with Close,
// and watches Done for an end that the namenode chose itself.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, waits: newWaitTable(), allocs: newAllocTable(), walkers: make(chan struct{}, 2), patience: time.Minute, reclaimWake: make(chan struct{}, 1),
		publishWake: make(chan struct{}, 1), reapWake: make(chan struct{}, 1),
		reaper: rate.NewLimiter(rate.Limit(cfg.ReapRate), max(cfg.ReapRate/10, 1)),
	}
	s.stopping, s.stop = context.WithCancelCause(context.Background())
	limitMemory(cfg.MemoryLimit)
	if err := s.open(ctx); err != nil {
		_ = s.release()
		return nil, err
	}
	if err := s.activate(ctx); err != nil {
		_ = s.release()
		return nil, offlineError(err, cfg.Data)
	}
	s.serve()
	return s, nil
}

// open takes the ports first, so that a port in use is told before any disk is
// touched, then the folder and the block store.
func (s *Server) open(ctx context.Context) error {
	var err error
	if s.grpcLis, err = listen(s.cfg.Listen, "--listen"); err != nil {
		return err
	}
	if s.httpLis, err = listen(s.cfg.HTTP, "--http"); err != nil {
		return err
	}
	if s.dir, err = openDataDir(s.cfg.FS, s.cfg.Data); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	s.images = &imageFolder{fs: s.cfg.FS, dir: s.dir.file(imageDir), log: s.log, reserve: s.cfg.Reserve}
	s.collector.init()
	s.older = make(chan struct{}, 4)
	s.metrics = newMetrics(s)
	return nil
}

func listen(addr, flag string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; choose another address with %s", addr, err, flag)
	}
	return l, nil
}

func (s *Server) openStore(ctx context.Context) error {
	dir := s.cfg.BlocksDir
	if dir == "" {
		dir = s.dir.file(blocksDir)
	}
	if s.dir.fresh {
		if err := local.Format(s.cfg.FS, dir, s.dir.id); err != nil {
			return fmt.Errorf("block folder %s cannot be made: %w", dir, err)
		}
	}
	st, err := local.Open(local.Config{
		FS: s.cfg.FS, Dir: dir, NamespaceID: s.dir.id, Secret: s.dir.secret,
		BaseURL: s.baseURL, Clock: s.cfg.Clock, Reserve: s.cfg.Reserve, Logger: s.log,
		MaxObject: blockstore.StoredLength(blockstore.MaxBlockSize), Exclusive: true,
	})
	if err != nil {
		return err
	}
	s.store, s.blockHandler = st, st.Handler()
	if s.dir.fresh {
		if err := st.Probe(ctx); err != nil {
			return fmt.Errorf("block store %s cannot be used: %w", dir, err)
		}
	}
	return nil
}

// activate replays, begins a new term, and rebuilds the lease table from the
// tree: the truth about who holds a file is on its inode.
func (s *Server) activate(ctx context.Context) error {
	began := s.cfg.Clock.Mono()
	tree, err := s.recover(ctx)
	if err != nil {
		return err
	}
	s.tree = tree
	s.leases = leasemanager.New(leasemanager.Config{
		Clock: s.cfg.Clock, Soft: s.cfg.SoftLimit, Hard: s.cfg.HardLimit, AgeEvery: s.cfg.AgesEvery,
		Jitter: rand.Float64, //nolint:gosec // spreads load, keeps no secret
	})
	s.caches = cachelease.New(cachelease.Config{
		Clock: s.cfg.Clock, Term: max(s.cfg.CacheTerm, 0), FirstSeq: (tree.Term() + 1) << 32,
		ObserveWait: func(d time.Duration) { s.metrics.cacheWait.Observe(d.Seconds()) },
	})
	if s.term, err = s.nextTerm(ctx, tree.Term()); err != nil {
		return err
	}
	if err := s.journal.BeginTerm(ctx, s.term); err != nil {
		return err
	}
	s.activated = s.cfg.Clock.Mono()
	_, lastMS := tree.Last()
	if beyond := s.time.begin(s.cfg.Clock, lastMS); beyond > longStop {
		s.log.Warn("the last change is long ago; if it is not, the machine's clock is wrong, and new files get wrong times", "ago", beyond)
	}
	tree.Track(true)
	op := &namespace.OpActivate{Term: s.term, NamespaceID: s.dir.id, User: s.cfg.Superuser, Group: s.cfg.Supergroup}
	if last, _ := tree.Last(); last > 0 {
		op.User, op.Group = tree.Superuser()
	}
	if _, err := s.own(ctx, func() (namespace.Op, error) { return op, nil }); err != nil {
		return err
	}
	if s.dir.fresh {
		if err := s.dir.finish("leasefs "+s.cfg.Version, s.cfg.Clock.Wall().UTC().Format(time.RFC3339)); err != nil {
			return err
		}
	}
	s.leases.Rebuild(func(yield func(leasemanager.Holder, leasemanager.Ref) bool) {
		tree.OpenFiles(func(f namespace.OpenFile) bool {
			return yield(lmHolder(f.Holder), leasemanager.Ref{Inode: uint64(f.Inode), Epoch: f.Epoch})
		})
	}, func(yield func(leasemanager.Granted) bool) {
		tree.Leases(func(l namespace.Lease) bool {
			return yield(leasemanager.Granted{Holder: leaseOwner(l), ID: uint64(l.ID), TTL: time.Duration(l.TTL) * time.Millisecond})
		})
	}, s.journalledAge)
	if err := s.dropAges(ctx); err != nil {
		return err
	}
	// What the reign before has lent to readers is waited for.
	caching, term := tree.CachingSessions()
	ids := make([]cachelease.SessionID, len(caching))
	for i, id := range caching {
		ids[i] = cachelease.SessionID(id)
	}
	s.caches.Recover(ids, time.Duration(term)*time.Millisecond)
	if tree.SafeMode() {
		s.leases.Suspend()
	}
	last, _ := tree.Last()
	s.log.Info("active", "term", s.term, "txid", last, "inodes", tree.Counts().Inodes, "took", s.cfg.Clock.Mono()-began)
	return nil
}

// nextTerm is above the last reign's, and above that of every block in the
// store: blocks of later reigns mean that another namenode had this folder (one
// started from a backup), or that the data folder is an older copy. Their keys
// must not be minted again, and they are no orphans for us to judge.
func (s *Server) nextTerm(ctx context.Context, last uint64) (uint64, error) {
	top := last
	for {
		infos, err := s.store.List(ctx, blockstore.Key{Term: top, Seq: math.MaxUint64}, 1)
		if err != nil {
			return 0, err
		}
		if len(infos) == 0 {
			break
		}
		top = infos[0].Key.Term
	}
	if top > last && !s.dir.foreignBlocks() {
		s.log.Warn("the block folder has blocks of later reigns than this data folder: an older copy, or another namenode was started on it; from now on only leasefs admin gc searches for orphans", "last", last, "found", top)
		if err := s.dir.noteForeign(); err != nil {
			return 0, err
		}
	}
	return top + 1, nil
}

// Close ends the namenode: no new calls, those under way end or are cut after
// a few seconds, the journal is made durable, the folder is freed.
func (s *Server) Close() error {
	s.ready.Store(false)
	s.stop(errStopping)
	if s.grpcSrv != nil {
		done := make(chan struct{})
		go func() { s.grpcSrv.GracefulStop(); close(done) }()
		select {
		case <-done:
		case <-time.After(3 * time.Second):
			s.grpcSrv.Stop()
			<-done
		}
	}
	if s.httpSrv != nil {
		s.unused.close()
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		if s.httpSrv.Shutdown(ctx) != nil {
			_ = s.httpSrv.Close()
		}
		cancel()
	}
	s.workers.Wait()
	return s.release()
}

var errStopping = errors.New("the namenode is stopping")

// release frees what open took; it is safe after a partial open.
func (s *Server) release() error {
	s.stop(errStopping)
	var errs []error
	if s.journal != nil {
		errs = append(errs, s.journal.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	for _, l := range []net.Listener{s.grpcLis, s.httpLis} {
		if l != nil {
			_ = l.Close() // closed already by its server
		}
	}
	if s.dir != nil {
		errs = append(errs, s.dir.Close())
	}
	return errors.Join(errs...)
}

// Done is closed when the namenode stops; Err then says why. It stops by
// itself when the journal cannot be written: it must not answer from a state
// that the disk does not have.
func (s *Server) Done() <-chan struct{} { return s.stopping.Done() }

// Err is the reason of the end, nil while serving and after Close.
func (s *Server) Err() error {
	err := context.Cause(s.stopping)
	if errors.Is(err, errStopping) {
		return nil
	}
	return err
}

// Addr is the address of the gRPC service.
func (s *Server) Addr() string { return s.grpcLis.Addr().String() }

// HTTPAddr is the address of blocks and pages.
func (s *Server) HTTPAddr() string { return s.httpLis.Addr().String() }

// stepDown ends the reign for good: nothing is answered any more.
func (s *Server) stepDown(why error) {
	if s.ready.CompareAndSwap(true, false) {
		s.log.Error("stepping down", "cause", why)
	}
	s.stop(why)
}

// checkActive refuses while the namenode is not serving.
func (s *Server) checkActive() error {
	if s.ready.Load() {
		return nil
	}
	why := "the namenode is starting"
	if err := context.Cause(s.stopping); err != nil {
		why = err.Error()
	}
	return &fserror.Error{Kind: fserror.NotActive, Message: why, RetryAfter: 100 * time.Millisecond}
}
