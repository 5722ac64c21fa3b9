package zk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/journal"
	"github.com/leasefs/leasefs/internal/journal/group"
	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// Defaults of Config.
const (
	DefaultSegmentBytes = 16 << 20
	DefaultMaxBacklog   = 64 << 20
	DefaultInFlight     = 4
	DefaultCloseTimeout = 10 * time.Second

	firstPause = 5 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// Config says where a journal is and how it is written.
type Config struct {
	ZooKeeper zkconn.Config
	Path      string // absolute, for example /leasefs/NAME/journal; made if missing

	// SegmentBytes is the size at which a new segment, the unit of Purge, is
	// begun; 0 means DefaultSegmentBytes.
	SegmentBytes int64
	// MaxBacklog is how many bytes may wait to become durable before Append
	// fails with journal.ErrFull; 0 means DefaultMaxBacklog. A single record is
	// taken whatever its size.
	MaxBacklog int64
	// MaxNode is the size in bytes of the largest batch node; 0 means
	// DefaultMaxNode. It must stay below jute.maxbuffer of all servers by some
	// kilobytes, and each server needs 1,500 times as much memory besides the
	// journal. A larger record is kept in several nodes.
	MaxNode int
	// InFlight is how many batches may be under way; 0 means DefaultInFlight.
	// While some are, another is sent when it has as many records as all of
	// them together, or 64 KiB: each costs the servers much more than a record.
	InFlight int
	// First is the txid of the first record if the journal is made by this
	// Open; 0 means 1. For a journal that continues from a restored image.
	First uint64

	// Holder says in the term node who writes, for people.
	Holder string
	// Lease is how long after sending a write its writer may answer reads
	// (election.Window); a successor waits for it. 0: it answers none.
	Lease time.Duration
	// Written, if set, is called before each transaction that checks the term
	// is sent; what it returns is called if that transaction succeeded, from a
	// goroutine of the journal. election.Window.Write is one.
	Written func() (confirm func())
	// Wrote is that of group.Config; nil: nobody asks.
	Wrote func(took time.Duration, bytes int)
	// StallAfter makes the journal fail when something waits to become durable
	// and nothing has for so long; 0: it tries for ever.
	StallAfter time.Duration
	// CloseTimeout bounds Close; 0 means DefaultCloseTimeout.
	CloseTimeout time.Duration

	Clock  clock.Clock  // nil: the machine's
	Logger *slog.Logger // nil: slog.Default()
}

// Journal implements journal.Journal in nodes of ZooKeeper. See the package
// comment.
type Journal struct {
	*group.Commit
	group *group.Writer
	place
	amount
	link link

	cfg   Config
	log   *slog.Logger
	clock clock.Clock
	fresh bool

	life    context.Context // ends with the journal; its cause is why
	endLife context.CancelCauseFunc
	workers sync.WaitGroup

	taken   atomic.Uint64 // batches read
	reading turn.Turn     // of Replay, Tail, TakeOver and Purge

	beating turn.Turn // a Beat is under way

	mu         sync.Mutex
	positioned bool   // Replay has read to the end
	cur        cursor // behind what was read; the writer's start
	read       cursor // where the last Replay of the writer ended
	sight      sighting
	term       uint64 // of this reign; 0: none has begun
	epoch      uint32 // version of the term node, once begun
	token      string // in the term node
	lease      uint64 // milliseconds, in the term node: ours, or one of before that may still run
	awaited    bool   // no predecessor answers any more

	writer writer // the writer's goroutine alone uses it
}

var _ journal.Journal = (*Journal)(nil)

// Open connects, and makes the journal's nodes if they are missing. It reads no
// record: that is Replay, which comes next. It tries until ctx ends.
func Open(ctx context.Context, cfg Config) (*Journal, error) {
	if !strings.HasPrefix(cfg.Path, "/") || strings.HasSuffix(cfg.Path, "/") {
		return nil, fmt.Errorf("journal: ZooKeeper path %q must begin with / and not end with it", cfg.Path)
	}
	defaults(&cfg)
	if cfg.MaxNode < minMaxNode || cfg.MaxNode > maxMaxNode {
		return nil, fmt.Errorf("journal: batch nodes of %d bytes: the limit must be between %d and %d, and below jute.maxbuffer of the ZooKeeper servers", cfg.MaxNode, minMaxNode, maxMaxNode)
	}
	j := &Journal{
		cfg: cfg, log: cfg.Logger, clock: cfg.Clock,
		place:   place(cfg.Path),
		link:    link{to: cfg.ZooKeeper, log: cfg.Logger.With("path", cfg.Path), dialing: turn.New()},
		reading: turn.New(), beating: turn.New(),
	}
	j.writer.j = j
	j.group = group.New(group.Config{
		Header: headerSize, Target: cfg.MaxNode, MaxBacklog: cfg.MaxBacklog, Mono: cfg.Clock.Mono, Wrote: cfg.Wrote, Log: cfg.Logger.With("path", cfg.Path),
	})
	j.Commit = j.group.Commit
	j.group.OnClose(j.flushAndStop)
	j.life, j.endLife = context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, cancel := j.bounded(ctx)
	defer cancel()
	if err := j.retry(ctx, func(s *zkconn.Session) error { return j.format(ctx, s) }); err != nil {
		j.endLife(journal.ErrClosed)
		j.link.end()
		return nil, fmt.Errorf("open journal %s: %w", cfg.Path, err)
	}
	return j, nil
}

func defaults(cfg *Config) {
	if cfg.SegmentBytes <= 0 {
		cfg.SegmentBytes = DefaultSegmentBytes
	}
	if cfg.MaxBacklog <= 0 {
		cfg.MaxBacklog = DefaultMaxBacklog
	}
	cfg.MaxNode = cmp.Or(cfg.MaxNode, DefaultMaxNode)
	if cfg.InFlight <= 0 {
		cfg.InFlight = DefaultInFlight
	}
	if cfg.CloseTimeout <= 0 {
		cfg.CloseTimeout = DefaultCloseTimeout
	}
	cfg.Clock = cmp.Or[clock.Clock](cfg.Clock, clock.System{})
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	cfg.First = max(cfg.First, 1)
}

// format makes the journal's nodes, all or none: batch 0 has no record, so that
// batch 1 has one to continue.
func (j *Journal) format(ctx context.Context, s *zkconn.Session) error {
	there, err := s.Exists(ctx, j.path(termNode))
	if err != nil || there {
		return err
	}
	if err := s.EnsurePath(ctx, j.cfg.Path); err != nil {
		return err
	}
	node := make([]byte, headerSize)
	(&header{parts: 1, first: j.cfg.First}).seal(node)
	create := func(path string, data []byte) any {
		return &zookeeper.CreateRequest{Path: path, Data: data, Acl: s.ACL()}
	}
	first := firstInfo{txid: j.cfg.First}
	_, err = s.Multi(ctx,
		create(j.path(termNode), termInfo{released: true}.encode()),
		create(j.path(firstNode), first.encode()),
		create(j.path(beatNode), encodeBeat(0, 0)),
		create(j.path(batchesNode), nil),
		create(j.folderPath(0), nil),
		create(j.batchPath(0), node))
	if errors.Is(err, zookeeper.ErrNodeExists) {
		return nil // another namenode was faster, or this one before it lost the connection
	}
	j.fresh = err == nil
	return err
}

// Fresh reports whether Open made the journal.
func (j *Journal) Fresh() bool { return j.fresh }

// Size implements journal.Journal: total is the batches
// that ZooKeeper holds, without what a node takes besides. After a start sinceRoll is the
// size of the batches that the first Replay was asked for: what came since the
// image.
func (j *Journal) Size() (total, sinceRoll int64) {
	return j.keptBytes(), j.group.SinceRoll()
}

var errCloseTimeout = errors.New("ZooKeeper did not take all that was appended before the journal was closed")

// flushAndStop is what Close does: it makes all that was appended durable, if that can be
// done within CloseTimeout. Its error wraps journal.ErrFailed if something that was
// appended is not known to be durable.
func (j *Journal) flushAndStop() error {
	late := time.AfterFunc(j.cfg.CloseTimeout, func() { j.endLife(errCloseTimeout) })
	j.group.Stop()
	late.Stop()
	j.endLife(journal.ErrClosed)
	j.workers.Wait()
	unlock, _ := j.reading.Lock(context.Background()) // a Replay, Tail or Purge under way ends now
	defer unlock()
	j.link.end()
	return j.Err()
}

// bounded is ctx that ends with the journal too.
func (j *Journal) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(j.life, func() { cancel(context.Cause(j.life)) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

// lockReading takes the turn that Replay, Tail, TakeOver and Purge share.
func (j *Journal) lockReading(ctx context.Context) (unlock func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if unlock, err = j.reading.Lock(ctx); err != nil {
		return nil, err
	}
	if j.group.Closing() {
		unlock()
		return nil, journal.ErrClosed
	}
	return unlock, nil
}

// moveTo makes c the place where the journal continues. The lock is held.
func (j *Journal) moveTo(c *cursor) {
	j.cur = *c
	j.written(c.offset, c.number)
	j.group.MoveTo(c.txid - 1)
}
