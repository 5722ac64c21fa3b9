package namenode

import (
	"context"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/namenode/archive"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/blocks"
	"github.com/leasefs/leasefs/namenode/cancels"
	"github.com/leasefs/leasefs/namenode/clocks"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/drafts"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/forecast"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/images"
	"github.com/leasefs/leasefs/namenode/leases"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/owner"
	"github.com/leasefs/leasefs/namenode/quotas"
	"github.com/leasefs/leasefs/namenode/reign"
	"github.com/leasefs/leasefs/namenode/scrub"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/sessions"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/snapshots"
	"github.com/leasefs/leasefs/namenode/space"
	"github.com/leasefs/leasefs/namenode/trash"
	"github.com/leasefs/leasefs/namenode/waiting"
	"github.com/leasefs/leasefs/namenode/watch"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// service answers calls, each of its parts those of one kind.
type service struct {
	unimplemented
	*tree
	*writers
	*granted
	*streams
	*watches
	*operators
	*trash.Room
	*quotas.Calls
	*snapshots.Service
	*cancels.Opens
}

// unimplemented answers the calls of newer clients. What service has goes before it.
type unimplemented struct {
	pb.UnimplementedNamenodeServer
	pb.UnimplementedAdminServer
}

// desk is what all parts of the service have: it finds out who asks, changes what opens
// no file, and words what they have in common.
type desk struct {
	cfg      *Config
	loops    *loops.Group
	engine   *engine.Engine
	role     *reign.Role
	front    *serve.Front
	leases   *leases.Table
	sessions *sessions.Table
	patience time.Duration // for a client to take a part of a long answer; see send
}

// tree looks at the tree, and changes it without opening a file.
type tree struct {
	*desk
	blocks   *blocks.Blocks
	store    blockstore.Store
	events   *watch.Feed
	removals removals
	trash    *trash.Room
	walkers  *share.Turns // of walks of the whole tree
	held     func(user string) []share.Holding
}

// writers serves those who write files, or want to.
type writers struct {
	*desk
	blocks *blocks.Blocks
	store  blockstore.Store
	space  *space.Space
	drafts *drafts.Table
	waits  *waiting.Table
	older  *share.Turns // of reads of blocks before a commit, by the users who commit
	files  *share.Limit // open for write, of sessions' users
}

// granted serves leases that clients ask for, and tells of all.
type granted struct {
	*desk
	waits   *waiting.Table
	history *history.Log
	looks   *share.Turns // of looks into it
}

// streams serves sessions: their lease, and what they keep of what they have read.
type streams struct {
	*desk
	dir    *datadir.Dir
	drafts *drafts.Table
}

// watches serves those who want to know of changes.
type watches struct {
	*desk
	events   *watch.Feed
	watchers *share.Limit
}

// operators serves those who look after the namenode.
type operators struct {
	*desk
	tree    *tree
	started time.Duration
	audit   *audit.Log
	greedy  func() []share.Holding
	urlLife time.Duration // of the URLs of a backup
	snaps   *snapshots.Service
	journal journal.Journal
	dir     *datadir.Dir
	store   blockstore.Store
	images  *images.Keeper
	owner   *owner.Owner
	blocks  *blocks.Blocks
	space   *space.Space
	clocks  *clocks.Clocks
	scrub   *scrub.Scrub
	archive *archive.Archive

	forecast *forecast.Table
	quotas   *quotas.Calls
}

// newService makes a service that can tell only how the namenode is, until its namespace
// is loaded.
func (s *Server) newService() *service {
	d := &desk{cfg: &s.cfg, loops: s.loops, engine: s.engine, role: s.role, front: s.front, sessions: &s.sessions, patience: time.Minute}
	t := &tree{desk: d, walkers: share.NewTurns(2), held: rooms{s}.held}
	bin := trash.Config{Log: s.log, Engine: s.engine, Caller: d.caller, Attr: d.attr, Emptied: func() { s.blocks.Wake() }, Short: func(ctx context.Context) (store bool, heap int64) {
		few, err := s.blocks.RoomShort(ctx)
		return err == nil && few, s.space.MemoryShort()
	}}
	room := &trash.Room{Config: bin, Asked: d.asked}
	t.trash = room
	limits := &quotas.Calls{Engine: s.engine, Caller: d.caller, Asked: func(ctx context.Context, r *pb.SetQuotaRequest) (*namespace.Call, namespace.CallID, error) {
		return d.asked(ctx, r)
	}}
	turn := func(ctx context.Context, c *namespace.Call) (func(), error) {
		w := &walk{s: t, ctx: ctx, c: c}
		return w.giveTurn, w.takeTurn()
	}
	snaps := &snapshots.Service{Config: snapshots.Config{Turn: turn, Engine: s.engine, Caller: d.caller, Attr: d.attr, Memory: s.cfg.MemoryLimit, Deleted: func() { s.blocks.Wake() }, Asked: func(ctx context.Context, r snapshots.Request) (*namespace.Call, namespace.CallID, error) {
		return d.asked(ctx, r)
	}}}
	opens := cancels.New(s.engine, func(ctx context.Context, r *pb.CancelOpenRequest) (*namespace.Call, namespace.CallID, error) {
		return d.asked(ctx, r)
	})
	return &service{
		Room: room, Calls: limits, Service: snaps, Opens: opens,
		tree: t, writers: &writers{desk: d, older: share.NewTurns(4), files: share.Of(maxWritten, share.Files, s.cfg.quota(share.Files))}, granted: &granted{desk: d, looks: share.NewTurns(2)}, streams: &streams{desk: d},
		watches: &watches{desk: d, watchers: share.Of(int64(s.cfg.MaxWatches), share.Watches, s.cfg.quota(share.Watches))}, operators: &operators{desk: d, tree: t, quotas: limits, snaps: snaps, started: s.started, audit: s.audit, greedy: s.greedy, urlLife: backupURLLife},
	}
}

// furnish gives the service the rooms of what was loaded. Nothing asks for them before
// the role says so.
func (s *Server) furnish(to *service) {
	to.tree.leases = s.leases // the desk's
	to.tree.blocks, to.tree.store, to.tree.events = s.blocks, s.store, s.events
	w, o := to.writers, to.operators
	w.blocks, w.store, w.space, w.drafts, w.waits = s.blocks, s.store, s.space, s.drafts, s.waits
	to.granted.waits, to.granted.history, to.watches.events = s.waits, s.history, s.events
	to.streams.dir, to.streams.drafts = s.dir, s.drafts
	o.journal, o.dir, o.store, o.images, o.owner = s.journal, s.dir, s.store, s.images, s.owner
	o.blocks, o.space, o.clocks, o.scrub, o.archive, o.forecast = s.blocks, s.space, s.clocks, s.scrub, s.archive, s.forecast
}

// serve begins to answer, once.
func (s *Server) serve() {
	s.front.Serve(s.role, s.shown, func(to grpc.ServiceRegistrar) {
		pb.RegisterNamenodeServer(to, s.calls)
		pb.RegisterAdminServer(to, s.calls)
	})
}
