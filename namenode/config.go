package namenode

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/user"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/machine"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/audit"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/ensemble"
	"github.com/leasefs/leasefs/namenode/groups"
	"github.com/leasefs/leasefs/namenode/history"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/loops"
	"github.com/leasefs/leasefs/namenode/marker"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/namenode/serve"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/space"
)

// Defaults of a namenode. The lease limits are HDFS's.
const (
	DefaultListen      = "127.0.0.1:8020"
	DefaultHTTP        = "127.0.0.1:8021"
	DefaultSoftLimit   = 60 * time.Second
	DefaultHardLimit   = 20 * time.Minute
	DefaultURLLife     = 15 * time.Minute
	minURLLife         = 5 * time.Second // stores sign whole seconds, and it has begun by then
	DefaultMaxTail     = 1 << 20
	DefaultTailBudget  = 256 << 20
	DefaultReserve     = 128 << 20
	DefaultReapRate    = 1000
	DefaultAgesEvery   = 10 * time.Second
	DefaultCacheTerm   = 10 * time.Second
	DefaultWatchEvents = 100_000
	DefaultWatchBytes  = 64 << 20

	// SmallFile is how many bytes a create may carry.
	SmallFile = 1 << 20
)

// Config says how a namenode serves. Only Data is needed.
type Config struct {
	Data   string // folder of VERSION, journal, images and blocks; made when missing
	Listen string // gRPC; port 0 takes a free one
	HTTP   string // blocks, /metrics, /healthz, /readyz, /activez
	// OpenPort opens Listen, HTTP and Pages; nil: net.Listen.
	OpenPort func(network, address string) (net.Listener, error)
	// AdvertiseHTTP is the HOST:PORT by which clients reach HTTP; needed when
	// HTTP listens on all addresses and the host's name does not resolve.
	AdvertiseHTTP string
	BlocksDir     string // folder of the local block store; default Data/blocks
	// Blocks is the URL of the block store: file:///DIR (the same as BlocksDir)
	// or s3://BUCKET/PREFIX?endpoint=….
	Blocks string
	// StoreTransport carries the requests to an S3 store; nil: one with the
	// certificates of the system and of AWS_CA_BUNDLE.
	StoreTransport http.RoundTripper
	// Advertise is the HOST:PORT by which clients reach Listen; needed with HA
	// when Listen is all addresses and the host's name does not resolve.
	Advertise string
	// HA makes this one of several namenodes; nil: it serves alone.
	HA *ensemble.HA
	s3 *s3.Location // what Blocks says

	BlockSize int64         // bytes of data in a full block
	URLLife   time.Duration // how long a signed URL is good
	LeaseTimes
	Limits
	Upkeep
	Oversight

	Pprof bool // serve /debug/pprof

	TLS *tls.Config // serves gRPC and HTTP with it
	// Identity is how clients prove who they are. If they need not, Listen must be a
	// loopback address, unless it says that all clients are trusted.
	Identity identity.Config

	// TakeOver is the incarnation of the namespace whose block store becomes this
	// one's. That one must have ended; it has no effect if the store is this
	// one's already.
	TakeOver string

	Superuser, Supergroup string                     // of a new namespace; default the process's
	Groups                func(user string) []string // default the operating system's
	Clock                 clock.Clock
	FS                    vfs.FS
	JournalAhead          int64 // see internal/journal/local.Config.Ahead
	Logger                *slog.Logger
	Tracer                trace.Tracer // begins a span for each call; nil: none has one
	Version               string
}

// LeaseTimes are how long leases live.
type LeaseTimes struct {
	SoftLimit, HardLimit time.Duration
	// MinLeaseTTL is the shortest time to live of a granted lease, and of several
	// namenodes the shortest soft limit that a session can have of its own; shorter ones
	// are raised to it. 0: reign.DefaultMinLeaseTTL, or of several namenodes three session
	// time-outs, which outlive a failover.
	MinLeaseTTL time.Duration
	// ReapRate is how many files of granted leases that have ended are removed from memory
	// in a second. They have left the tree with the end of their lease, which needs no rate.
	ReapRate int
	// AgesEvery is how often the age of leases that missed renewals is
	// journalled.
	AgesEvery time.Duration
	// CacheTerm is how long a read-cache lease lasts: a change waits no longer
	// than that (and a margin) for a reader that is gone. 0: DefaultCacheTerm,
	// below 0: no caching.
	CacheTerm time.Duration
}

// Limits are what all that ask share.
type Limits struct {
	MaxTail    int   // bytes
	TailBudget int64 // bytes of all tails in memory
	Reserve    int64 // bytes of disk kept free for deleting
	// MemoryLimit is how many bytes the process should take; when three quarters
	// are in use nothing new is made. 0: three quarters of the machine's, or the container's.
	MemoryLimit int64
	// WatchEvents and WatchBytes bound what is kept for watches that resume or
	// are slow.
	WatchEvents int
	WatchBytes  int64
	MaxWatches  int // served at once; 0: 10,000
	MaxWaiting  int // calls that wait at once for something else than the disk; 0: 100,000
	MaxInFlight int // calls served at once; more are told to retry
	MaxStreams  int // concurrent streams of one connection, and calls that one of them carries
	// MaxConnections is how many connections there may be on both addresses
	// together. 0: what the limit of open files has room for.
	MaxConnections int
	// MaxUnfinished is how many bytes of messages that are not complete may be in
	// memory, and how many of answers that their clients do not take. 0: a sixteenth
	// of MemoryLimit, 64 MiB to 1 GiB.
	MaxUnfinished int64
}

// Upkeep is when images are made and blocks are deleted.
type Upkeep struct {
	CheckpointRecords int64         // records that cause an image
	CheckpointBytes   int64         // journal bytes that cause an image
	CheckpointEvery   time.Duration // age that causes an image
	SealAfter         time.Duration // a closed file's large tail is sealed after so long
	CollectEvery      time.Duration // how often garbage blocks are deleted
	SweepEvery        time.Duration // how often the store is searched for orphans
	// DeleteAfter is how long a namenode that has become active removes nothing
	// from a store that others may have, so that they can object.
	DeleteAfter time.Duration
}

// Oversight is how its operator sees who asks for what, and says for how much.
type Oversight struct {
	// Pages is where /metrics, /healthz, /readyz, /activez and profiles are instead of HTTP,
	// which keeps the blocks; empty: at HTTP.
	Pages string
	// Audit is the record of who asked for what. Its clock and log are the namenode's.
	Audit audit.Config

	// LeaseHistory is for how long it is kept who held files and granted leases, 0:
	// history.DefaultKeep, below 0: not at all; LeaseHistoryBytes is how many bytes of the
	// data folder that may take, the oldest go first, 0: history.DefaultBytes.
	LeaseHistory      time.Duration
	LeaseHistoryBytes int64

	// Scrub is in how long all blocks and images are read and verified, 0:
	// scrub.DefaultEvery, below 0: never; ScrubRate is how many bytes a second that may read,
	// 0: scrub.DefaultRate.
	Scrub     time.Duration
	ScrubRate int64

	// Archive is how far back the archive of the journal, in the store of blocks, has every
	// moment; 0: as long as the reign before, if several namenodes or copies can use the store;
	// below 0: nothing is archived.
	Archive time.Duration

	// Shares is who may have how much of what all share, see OpenShares; nil: as much as
	// leaves the others theirs.
	Shares *proof.File[*share.Quotas]
}

// HA says how several namenodes serve one namespace, one of them at a time.
type HA = ensemble.HA

// DefaultSessionTimeout is what HA.SessionTimeout is unless told otherwise.
const DefaultSessionTimeout = ensemble.DefaultSessionTimeout

// DefaultDeleteAfter is Config.DeleteAfter unless told otherwise: the others look at
// the store every half minute.
const DefaultDeleteAfter = 2 * time.Minute

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Listen, DefaultListen)
	setDefault(&c.HTTP, DefaultHTTP)
	setDefault(&c.SoftLimit, DefaultSoftLimit)
	setDefault(&c.HardLimit, DefaultHardLimit)
	setDefault(&c.BlockSize, blockstore.DefaultBlockSize)
	setDefault(&c.MaxTail, DefaultMaxTail)
	setDefault(&c.TailBudget, DefaultTailBudget)
	setDefault(&c.URLLife, DefaultURLLife)
	setDefault(&c.Reserve, DefaultReserve)
	setDefault(&c.CheckpointRecords, 1_000_000)
	setDefault(&c.CheckpointBytes, 256<<20)
	setDefault(&c.CheckpointEvery, time.Hour)
	setDefault(&c.SealAfter, time.Minute)
	setDefault(&c.CollectEvery, 30*time.Second)
	setDefault(&c.SweepEvery, time.Hour)
	setDefault(&c.DeleteAfter, DefaultDeleteAfter)
	setDefault(&c.ReapRate, DefaultReapRate)
	setDefault(&c.AgesEvery, DefaultAgesEvery)
	setDefault(&c.CacheTerm, DefaultCacheTerm)
	setDefault(&c.WatchEvents, DefaultWatchEvents)
	setDefault(&c.WatchBytes, DefaultWatchBytes)
	setDefault(&c.LeaseHistory, history.DefaultKeep)
	setDefault(&c.LeaseHistoryBytes, history.DefaultBytes)
	setDefault(&c.MaxWatches, 10_000)
	setDefault(&c.MaxWaiting, 100_000)
	setDefault(&c.MaxInFlight, 8192)
	setDefault(&c.MaxStreams, 4096)
	setDefault(&c.Version, "dev")
	if c.OpenPort == nil {
		c.OpenPort = net.Listen
	}
	c.Clock = cmp.Or[clock.Clock](c.Clock, clock.System{})
	c.FS = cmp.Or(c.FS, vfs.OS())
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Groups == nil {
		c.Groups = groups.New(c.Clock).Of
	}
	if c.MemoryLimit == 0 {
		c.MemoryLimit = machine.Memory() / 4 * 3
	}
	setDefault(&c.MaxUnfinished, min(max(c.MemoryLimit/16, 64<<20), 1<<30))
	setDefault(&c.MaxConnections, space.Connections())
	if err := c.defaultSuperuser(); err != nil {
		return c, err
	}
	if err := c.parseBlocks(); err != nil {
		return c, err
	}
	if c.HA != nil {
		ha := *c.HA
		c.HA = &ha
		setDefault(&ha.SessionTimeout, ensemble.DefaultSessionTimeout)
		if err := ha.Check(); err != nil {
			return c, err
		}
	}
	return c, c.check()
}

// Offline is the same for what is done to the namespace of several namenodes without
// one; Data is not needed.
func (c Config) Offline() (offline.Config, error) {
	setDefault(&c.Data, "unused") // by check only
	c, err := c.withDefaults()
	if err != nil {
		return offline.Config{}, err
	}
	o := offline.Config{
		HA: c.HA, Blocks: c.Blocks, BlocksDir: c.BlocksDir, Reserve: c.Reserve, FS: c.FS, Clock: c.Clock, Logger: c.Logger,
		By: "leasefs " + c.Version, Release: c.Version, Incarnation: c.incarnation,
	}
	if c.s3 != nil {
		o.S3 = func(id [16]byte) s3.Config { return c.s3Config(id, c.Logger) }
	}
	return o, nil
}

// front is how the namenode listens.
func (c *Config) front(group *loops.Group, guard *identity.Guard) serve.Config {
	return serve.Config{
		Guard: guard, Quota: c.quota, Limits: func(what string) bool { return c.quotas().Limits(what) },
		Clock: c.Clock, Log: c.Logger, Loops: group, Listen: c.Listen, HTTP: c.HTTP, Pages: c.Pages, OpenPort: c.OpenPort, AdvertiseHTTP: c.AdvertiseHTTP, TLS: c.TLS, Pprof: c.Pprof,
		Tracer: c.Tracer, MaxConnections: c.MaxConnections, MaxUnfinished: c.MaxUnfinished, MaxWaiting: c.MaxWaiting, MaxInFlight: c.MaxInFlight, MaxStreams: c.MaxStreams,
		Answer: func(ctx context.Context, waits func(context.Context)) (context.Context, serve.Answer) {
			return engine.WithAnswer(ctx, waits)
		},
	}
}

// parseBlocks reads Blocks.
func (c *Config) parseBlocks() error {
	switch dir, isFile := strings.CutPrefix(c.Blocks, "file://"); {
	case c.Blocks == "":
	case isFile && filepath.IsAbs(dir):
		c.BlocksDir = dir
	case strings.HasPrefix(c.Blocks, s3.Scheme+"://"):
		loc, err := s3.ParseURL(c.Blocks)
		if err != nil {
			return err
		}
		c.s3 = &loc
	default:
		return fserror.New(fserror.InvalidArgument, "", "", "unknown block store %q; give file:///DIR or s3://BUCKET/PREFIX?endpoint=URL", c.Blocks)
	}
	return nil
}

// s3Config is how the S3 store of a namespace is opened.
func (c *Config) s3Config(id [16]byte, log *slog.Logger) s3.Config {
	return s3.Config{
		Location: *c.s3, NamespaceID: id, Clock: c.Clock, Logger: log, Transport: c.StoreTransport,
		MaxObject: blockstore.StoredLength(blockstore.MaxBlockSize),
	}
}

func setDefault[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

func (c *Config) defaultSuperuser() error {
	if c.Superuser != "" && c.Supergroup != "" {
		return nil
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Errorf("who runs the namenode is not known (%w); name a superuser", err)
	}
	setDefault(&c.Superuser, u.Username)
	if c.Supergroup == "" {
		c.Supergroup = "supergroup"
		if g, err := user.LookupGroupId(u.Gid); err == nil {
			c.Supergroup = g.Name
		}
	}
	return nil
}

func (c *Config) check() error {
	switch {
	case c.Data == "":
		return fserror.New(fserror.Internal, "", "", "no data folder named").Because(fserror.ReasonData)
	case c.SoftLimit < 100*time.Millisecond:
		return fmt.Errorf("soft limit %s is too short; at least 100ms", c.SoftLimit)
	case c.HA != nil && c.Blocks == "" && c.BlocksDir == "":
		return fserror.New(fserror.Internal, "", "", "several namenodes need a block store that all of them reach: s3://BUCKET/PREFIX or file:///SHARED/FOLDER").Because(fserror.ReasonBlocks)
	case c.Identity.TrustClients && c.Identity.Proves():
		return fserror.New(fserror.InvalidArgument, "", "", "clients are to prove who they are, and to be trusted without: choose one").Because(fserror.ReasonIdentity)
	case c.Identity.Proxies != nil && !c.Identity.Proves():
		return fserror.New(fserror.InvalidArgument, "", "", "proxy rules need client authentication: without it, nobody is known to be the user that a rule names").Because(fserror.ReasonIdentity)
	case c.Identity.Delegates && !c.Identity.Proves():
		return fserror.New(fserror.InvalidArgument, "", "", "delegation tokens are for clients who prove who they are otherwise, and none has to").Because(fserror.ReasonIdentity)
	case c.HardLimit < c.SoftLimit:
		return fmt.Errorf("hard limit %s is below the soft limit %s", c.HardLimit, c.SoftLimit)
	case c.MinLeaseTTL > tables.MaxLeaseTTL*time.Millisecond:
		return fserror.New(fserror.InvalidArgument, "", "", "a least time to live of granted leases of %s is more than a lease can have, 365 days", c.MinLeaseTTL).Because(fserror.ReasonMinLeaseTTL)
	case c.BlockSize < blockstore.ChunkSize || c.BlockSize > blockstore.MaxBlockSize:
		return fmt.Errorf("block size %d is not within %d and %d bytes", c.BlockSize, blockstore.ChunkSize, blockstore.MaxBlockSize)
	case c.MaxTail < 4096 || int64(c.MaxTail) > c.BlockSize || c.MaxTail > serve.MaxMessage/2:
		return fmt.Errorf("tail limit %d is not within 4096 and the block size", c.MaxTail)
	case c.ReapRate < 1:
		return fmt.Errorf("a rate of %d files a second removes none; at least 1", c.ReapRate)
	case c.CacheTerm > 0 && c.CacheTerm < 100*time.Millisecond:
		return fmt.Errorf("cache term %s is too short; at least 100ms, or below 0 for no caching", c.CacheTerm)
	case c.LeaseHistoryBytes < history.LeastBytes:
		return fmt.Errorf("%d bytes for the history of leases are too few; at least 1 MiB", c.LeaseHistoryBytes)
	case c.MaxConnections < 8:
		return fmt.Errorf("there is room for %d connections, and at least 8 are needed: raise the limit of open files (ulimit -n)", c.MaxConnections)
	case c.TakeOver != "" && !marker.IsID(c.TakeOver):
		return fmt.Errorf("%q is no incarnation to take over (32 hexadecimal digits, as the refusal has them)", c.TakeOver)
	case c.URLLife < minURLLife:
		return fmt.Errorf("URL life %s is too short; at least %s", c.URLLife, minURLLife)
	}
	return nil
}

// trusts says whose word is taken for who they are, as StatusResponse has it.
func (c *Config) trusts() string {
	switch {
	case c.Identity.Proves():
		return ""
	case c.Identity.TrustClients:
		return "everybody"
	}
	return "machine"
}

// checkTrust refuses to serve clients on other machines who prove nothing, unless that is
// wanted: any of them could act as any user.
func (c *Config) checkTrust(listens net.Addr) error {
	if tcp, ok := listens.(*net.TCPAddr); ok && tcp.IP.IsLoopback() || c.Identity.TrustClients {
		return nil
	}
	switch {
	case c.Identity.Proves() && c.TLS == nil:
		return fserror.New(fserror.InvalidArgument, "", "", "%s can be reached from other machines, and without TLS the network would see each token", listens).Because(fserror.ReasonTLS)
	case c.Identity.Proves():
		return nil
	}
	return fserror.New(fserror.InvalidArgument, "", "", "%s can be reached from other machines, and clients would not have to prove who they are: "+
		"whoever reaches it could act as any user, superusers included", listens).Because(fserror.ReasonIdentity)
}
