package namenode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/local"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/clocks"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/drafts"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/forecast"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/meters"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/scrub"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/sessions"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/space"
	"github.com/leasefs/leasefs/namenode/waiting"
	"github.com/leasefs/leasefs/namenode/watch"
)

// Server is one running namenode.
type Server struct {
	cfg     Config
	log     *slog.Logger
	started time.Duration
	loops   *loops.Group
	front   *serve.Front
	audit   *audit.Log // nil: none is kept
	calls   *service
	role    *reign.Role
	meters  *meters.Meters
	shown   *prometheus.Registry // by /metrics

	dir     *datadir.Dir
	journal journal.Journal
	store   blockstore.Store
	objects blockstore.Objects
	space   *space.Space
	clocks  *clocks.Clocks

	engine   *engine.Engine
	images   *images.Keeper
	owner    *owner.Owner
	blocks   *blocks.Blocks
	leases   *leases.Table
	sessions sessions.Table
	drafts   *drafts.Table  // files that sessions make without asking
	waits    *waiting.Table // who waits for a file to be freed or to grow
	events   *watch.Feed
	history  *history.Log // of leases; nil: none is kept
	scrub    *scrub.Scrub // nil: nothing is scrubbed
	archive  *archive.Archive
	forecast *forecast.Table
}

// Start opens the data folder, brings the namespace back, takes the reign and
// serves. It returns once the namenode answers. The caller ends it with Close,
// and watches Done for an end that the namenode chose itself.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger}
	s.loops = loops.New(s.log, func(why error) { s.role.Fail(why) })
	space.LimitMemory(cfg.MemoryLimit)
	s.started = cfg.Clock.Mono()
	if err := s.open(ctx); err != nil {
		_ = s.stop()
		return nil, err
	}
	if err := s.bringUp(ctx); err != nil {
		_ = s.stop()
		return nil, journal.Damaged(err, cfg.Data)
	}
	return s, nil
}

// bringUp loads the namespace and serves it: alone at once, else as a standby.
func (s *Server) bringUp(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	s.loops.Run("history of leases", func(ctx context.Context) error { return s.history.Run(ctx, s.journal.Durable) })
	if err := s.role.Begin(ctx, reign.Rooms{Engine: s.engine, Owner: s.owner, Blocks: s.blocks, Images: s.images, Leases: s.leases}); err != nil {
		return err
	}
	s.loops.Run("forecast", func(ctx context.Context) error { return s.forecast.Run(ctx, rooms{s}.readings) })
	s.loops.Run("forecast of the store", func(ctx context.Context) error { return s.forecast.Run(ctx, s.space.StoreReading) })
	s.loops.Every("clocks", clocks.Every, s.clocks.Due, s.clocks.Compare)
	return nil
}

// open takes the ports first, so that a port in use is told before any disk is
// touched, then the folder and the block store.
func (s *Server) open(ctx context.Context) error {
	var err error
	if s.cfg.Identity.Delegates {
		s.cfg.Identity.Delegation = passes{s}
	}
	guard := identity.New(s.cfg.Identity, s.cfg.Clock, s.log)
	s.cfg.Audit.Clock, s.cfg.Audit.Log = s.cfg.Clock, s.log
	if s.audit, err = audit.New(s.cfg.Audit); err != nil {
		return err
	}
	front := s.cfg.front(s.loops, guard)
	front.Audit, front.UserOf, front.Operator, front.Page = s.audit, s.userOf, s.operator, s.newPage
	if s.front, err = serve.Listen(front); err != nil {
		return err
	}
	for _, at := range s.front.Listens() {
		if err := s.cfg.checkTrust(at); err != nil {
			return err
		}
	}
	guard.Knows(identity.People{Groups: s.cfg.Groups, Superuser: func() (user, group string) { return s.engine.Superuser() }})
	s.loops.Every("proofs of identity", identity.Every, nil, guard.Check)
	s.loops.Every("groups of users", identity.Every, nil, guard.CheckGroups)
	s.loops.Every("shares", identity.Every, nil, s.checkShares)
	if is := s.cfg.Identity.Issuers; is != nil {
		s.loops.Run("keys of issuers", func(ctx context.Context) error { return is.Run(ctx, s.log) })
	}
	s.logStart()
	s.shown = prometheus.NewRegistry()
	s.meters = meters.New(s.shown)
	s.role = s.newRole()
	s.engine = engine.New(engine.Config{
		Clock: s.cfg.Clock, Log: s.log, CacheTerm: s.cfg.CacheTerm, Reign: s.role, Rooms: rooms{s}, Quota: s.cfg.quota(share.Leases),
		ObserveWait: s.meters.Waited,
	})
	s.waits = waiting.New(waiting.Config{Clock: s.cfg.Clock, Stopping: s.loops.Done(), Active: s.role.Active})
	s.drafts = drafts.New(s.engine, s.cfg.Clock, s.cfg.CacheTerm)
	s.calls = s.newService()
	register(s, s.shown)
	if s.cfg.HA != nil {
		s.serve() // loading may take long, and ZooKeeper be away: clients are sent on
	}
	if s.dir, err = s.role.Open(ctx); err != nil {
		return err
	}
	if err := s.openStore(ctx); err != nil {
		return err
	}
	s.owner = s.newOwner()
	s.blocks = blocks.New(blocks.Config{
		Clock: s.cfg.Clock, Log: s.log, Engine: s.engine, Store: s.store, Objects: s.objects, Owner: s.owner, Absent: func(of namespace.InodeID, b namespace.Block) bool { return s.scrub.Suspect(of, b) },
		Imaged: func() int64 { return s.images.Since() }, Early: func() { s.images.Hurry() },
		BlockSize: s.cfg.BlockSize, URLLife: s.cfg.URLLife, TailBudget: s.cfg.TailBudget, SealAfter: s.cfg.SealAfter,
	})
	if err := s.owner.Meet(ctx); err != nil {
		return err
	}
	s.space = space.New(space.Config{Log: s.log, Dir: s.dir, Store: s.store, Blocks: s.blocks, Reserve: s.cfg.Reserve, Memory: s.cfg.MemoryLimit, Apart: s.cfg.Blocks+s.cfg.BlocksDir != ""})
	s.forecast = forecast.New(s.cfg.Clock)
	s.clocks = s.newClocks()
	s.archive = newArchive(s)
	s.images = s.newImages()
	s.scrub = scrub.New(scrub.Config{
		FS: s.cfg.FS, File: s.dir.File(datadir.ScrubFile), Clock: s.cfg.Clock, Log: s.log, Every: s.cfg.Scrub, Rate: s.cfg.ScrubRate,
		Snapshot: s.engine.Snapshot, Has: s.blocks.Has, Fetch: s.blocks.Fetch, Images: s.images.Verify, Objects: s.blocks.Noting(s.objects), Several: s.cfg.HA != nil, Term: s.role.Term, Remove: s.owner.Remove,
	})
	return s.openHistory()
}

// openStore opens the block store that the configuration names.
func (s *Server) openStore(ctx context.Context) error {
	if s.cfg.s3 != nil {
		return s.openS3(ctx)
	}
	dir := cmp.Or(s.cfg.BlocksDir, s.dir.File(datadir.BlocksDir))
	if s.dir.Fresh && s.cfg.HA == nil {
		if err := local.Format(s.cfg.FS, dir, s.dir.ID); err != nil {
			return fmt.Errorf("block folder %s cannot be made: %w", dir, err)
		}
	}
	st, err := local.Open(local.Config{
		FS: s.cfg.FS, Dir: dir, NamespaceID: s.dir.ID, Secret: s.dir.Secret,
		BaseURL: s.front.BaseURL, Clock: s.cfg.Clock, Reserve: s.cfg.Reserve, Logger: s.log, Tracer: s.cfg.Tracer, Observe: s.meters.Asked,
		MaxObject: blockstore.StoredLength(blockstore.MaxBlockSize), Exclusive: s.cfg.HA == nil, Shared: s.cfg.HA != nil,
	})
	if err != nil {
		return err
	}
	s.store, s.objects = st, st
	s.front.Blocks(st.Handler())
	return s.probe(ctx, st.Probe, dir)
}

// openS3 opens an S3-compatible store. Clients reach it directly.
func (s *Server) openS3(ctx context.Context) error {
	cfg := s.cfg.s3Config(s.dir.ID, s.log)
	cfg.Observe = s.meters.Asked
	st, err := s3.Open(ctx, cfg)
	if err != nil {
		return err
	}
	s.store, s.objects = st, st
	s.front.Blocks(http.NotFoundHandler())
	if err := s.probe(ctx, st.Probe, s.cfg.Blocks); err != nil || s.dir.Fresh && s.cfg.HA == nil {
		return err
	}
	return st.Check(ctx)
}

// probe makes sure that a store enforces what leasefs rests on, when a namenode
// alone makes a namespace. That of several was probed by its format.
func (s *Server) probe(ctx context.Context, probe func(context.Context) error, where string) error {
	if !s.dir.Fresh || s.cfg.HA != nil {
		return nil
	}
	if err := probe(ctx); err != nil {
		return fmt.Errorf("block store %s cannot be used: %w", where, err)
	}
	return nil
}

// load brings the namespace back.
func (s *Server) load(ctx context.Context) error {
	tree, err := s.images.Load(ctx)
	if err != nil {
		return err
	}
	s.journal = s.role.Journal()
	s.history.Loaded(tree)
	s.engine.Open(tree, s.journal)
	s.leases = leases.New(leases.Config{
		Clock: s.cfg.Clock, Log: s.log, Engine: s.engine, Soft: s.cfg.SoftLimit, Hard: s.cfg.HardLimit, AgesEvery: s.cfg.AgesEvery,
		ReapRate: s.cfg.ReapRate, ObservePass: s.meters.Passed,
		Opened: s.calls.openedFor,
	})
	s.furnish(s.calls)
	return s.owner.Claim(ctx)
}

// Close ends the namenode: no new calls, those under way end or are cut after
// a few seconds, the journal is made durable, the folder is freed.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	if err := s.role.HandOver(ctx); err != nil {
		s.log.Warn("the reign could not be handed over; a successor waits until it has surely ended", "cause", err)
	}
	cancel()
	return s.stop()
}

// stop is Close without a word to the others.
func (s *Server) stop() error {
	s.loops.Stop(errStopping)
	if s.front != nil {
		s.front.Close()
	}
	s.loops.Wait()
	s.audit.Close()
	return s.release()
}

// userOf is whose session it is, as far as that is known.
func (s *Server) userOf(session []byte) string {
	var id leasemanager.SessionID
	if len(session) != len(id) || !s.role.Ready() {
		return ""
	}
	copy(id[:], session)
	user, _ := s.leases.UserOf(id)
	return user
}

var errStopping = errors.New("the namenode is stopping")

// release frees what open took; it is safe after a partial open.
func (s *Server) release() error {
	s.loops.Stop(errStopping)
	var errs []error
	if s.role != nil {
		errs = append(errs, s.role.Close())
	}
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.dir != nil {
		errs = append(errs, s.dir.Close())
	}
	return errors.Join(errs...)
}

// Done is closed when the namenode stops; Err then says why. It stops by
// itself when the journal cannot be written: it must not answer from a state
// that the disk does not have.
func (s *Server) Done() <-chan struct{} { return s.loops.Done() }

// Err is the reason of the end, nil while serving and after Close.
func (s *Server) Err() error {
	err := s.loops.Err()
	if errors.Is(err, errStopping) {
		return nil
	}
	return err
}

// Tree returns a copy of the namespace as this namenode has it now; of a standby,
// as far as it has followed, and not all of it need be durable. For tests, which
// hold namenodes against each other.
func (s *Server) Tree() *namespace.Tree {
	return s.engine.Clone()
}

// Addr is the address of the gRPC service.
func (s *Server) Addr() string { return s.front.Addr() }

// HTTPAddr is the address of blocks and pages.
func (s *Server) HTTPAddr() string { return s.front.HTTPAddr() }

// Local makes the calls of a client in this process without a connection, where callers are
// believed about who they are. It is of this Server, and good for nothing after its end.
func (s *Server) Local() grpc.UnaryClientInterceptor {
	return s.front.Local(s.Addr(), s.advertised())
}

// PagesAddr is the address of the operator's pages.
func (s *Server) PagesAddr() string { return s.front.PagesAddr() }

// Reigned reports whether the namenode is active, or was.
func (s *Server) Reigned() bool { return s.role.Reigned() }

// Role is "active", "standby" or "starting"; "isolated" is one that was active and does
// not know whether it still is.
func (s *Server) Role() string { return s.role.String() }

// logStart says who this is and what it serves.
func (s *Server) logStart() {
	about := []any{"version", s.cfg.Version, "data", s.cfg.Data, "listen", s.Addr(), "http", s.HTTPAddr()}
	if s.cfg.Blocks != "" {
		about = append(about, "blocks", s.cfg.Blocks)
	}
	if h := s.cfg.HA; h != nil {
		about = append(about, "advertise", s.advertised(), "namespace", h.Name, "zookeeper", strings.Join(h.ZooKeeper, ","), "session-timeout", h.SessionTimeout)
	}
	s.log.Info("starting", about...)
	if s.cfg.Identity.TrustClients {
		s.log.Warn("clients are trusted: whoever reaches the address can act as any user, superusers included, and read and delete everything", "listen", s.Addr(), "reason", fserror.ReasonIdentity)
	}
	s.warnOfCertificates()
}

// certificateSoon is for how long a certificate is good at least of which nothing is said.
const certificateSoon = 14 * 24 * time.Hour

// warnOfCertificates says which of the certificates that clients are shown are not good,
// or not for much longer.
func (s *Server) warnOfCertificates() {
	if s.cfg.TLS == nil {
		return
	}
	now := s.cfg.Clock.Wall()
	for _, c := range s.cfg.TLS.Certificates {
		switch leaf := c.Leaf; {
		case leaf == nil:
		case now.After(leaf.NotAfter):
			s.log.Error("the certificate has expired, and clients refuse it: renew it", "reason", fserror.ReasonTLS, "expired", leaf.NotAfter)
		case now.Before(leaf.NotBefore):
			s.log.Error("the certificate is not good yet, and clients refuse it: is this machine's time of day right?", "from", leaf.NotBefore)
		case leaf.NotAfter.Sub(now) < certificateSoon:
			s.log.Warn("the certificate expires soon: renew it", "reason", fserror.ReasonTLS, "expires", leaf.NotAfter)
		}
	}
}

// advertised is the address that clients are sent to.
func (s *Server) advertised() string {
	if s.cfg.Advertise != "" {
		return s.cfg.Advertise
	}
	host, port, err := net.SplitHostPort(s.Addr())
	if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsUnspecified() {
		return s.Addr()
	}
	if host, err = os.Hostname(); err != nil {
		return s.Addr()
	}
	return net.JoinHostPort(host, port)
}
