package client

import (
	"cmp"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"os/user"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockcache"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/prover"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Limits and defaults of a Config.
const (
	// DefaultNamenode is asked when no address is given.
	DefaultNamenode = "127.0.0.1:8020"
	// DefaultTimeout is how long a call is retried while no namenode answers.
	DefaultTimeout = 60 * time.Second
	// MaxTimeout is the longest Timeout: a namenode remembers the results of
	// calls for longer than that, so a retry within it happens at most once.
	MaxTimeout = 2 * time.Minute
	// DefaultWriteAhead is how many blocks of a writer are under way at once.
	DefaultWriteAhead = 3
	// DefaultReadAhead is how many blocks a sequential reader fetches ahead.
	DefaultReadAhead = 2
	// DefaultBlockCacheSize and MinBlockCacheSize are bytes.
	DefaultBlockCacheSize = blockcache.DefaultSize
	MinBlockCacheSize     = blockcache.MinSize
)

// Config says how to reach a namespace and as whom. Only Namenodes matters to
// most programs; every zero value stands for a sensible default.
type Config struct {
	// Namenodes are the addresses, HOST:PORT each, of one namespace. Empty:
	// DefaultNamenode.
	Namenodes []string
	// User is who asks. Empty: the login name.
	User string
	// RealUser is the user who authenticates, if he acts for User, as a gateway does. The
	// namenode has to have a rule that lets him. Empty: whom the token or
	// the certificate names; so it need only be given if that names nobody.
	RealUser string
	// Client is the client's name, scoped to User. A process that comes back
	// under the same stable name may take over at once what an earlier, dead
	// one of that name holds. Empty: host, process id and a random part.
	Client string
	// Host and PID are shown to others as where a holder runs. Empty and 0:
	// this machine's name, this process.
	Host string
	PID  int64
	// TTL is how long the leases of this session last without renewal before
	// another client can take a file: its own soft limit. 0: the namenode's.
	TTL time.Duration
	// Cache keeps what is read of names, attributes and block lists, that a name
	// is missing included, for as long as the namenode promises that it does not
	// change: it asks for it back first. Stat, Lstat and Open of what is kept
	// make no call, and are never out of date. For programs that live long and
	// read the same things again; others' changes of what is kept wait for this
	// process, for the namenode's cache term (10 s) at most if it is gone.
	Cache bool
	// Drafts, with Cache, asks with each Create for the right to make more files in
	// that directory without a call, as a mount does. One client has it at a time.
	Drafts bool
	// OnRevoke, with Cache, is told what may change before the namenode is: who
	// keeps something made of what was read (the kernel, of a mount) drops it
	// then, since the change waits until OnRevoke has returned, for the cache
	// term at most. Also, with All, when the connection was lost. It must neither
	// call the FS nor wait for a call of it.
	OnRevoke func(Revocation)
	// OnGiveUp, beside OnRevoke, is told what a call of this client's own is about
	// to change. If it returns true, whoever keeps something made of that has
	// dropped it; if false, nothing is done and OnRevoke told in its time. It saves
	// asking this client about its own changes. The same rules hold.
	OnGiveUp func(Revocation) bool
	// CacheEntries and CacheBytes limit what is kept; 0: 20,000 (two for a
	// file) and 64 MiB.
	CacheEntries int
	CacheBytes   int64
	// OnWait is told what a call waits for that has been tried again for a second:
	// no namenode answers or is active, it is in safe mode or overloaded, the block
	// store does not answer. Each call tells each cause once at most, and of a cause
	// that was told within the last 30 s no other call tells again. It is called by
	// the goroutine that waits, one of the FS's own for some writers and readers,
	// but never twice at once; the call continues when it returns, so it must return
	// soon, and it must not call the FS. That a call waits no more is not told. Nil:
	// nobody is told.
	OnWait func(Waiting)
	// Umask are bits that the modes of what this client makes do not have: of a file
	// made without WithMode, 0666 less these, of missing parents 0777. Nil: 022,
	// whatever the process's own is, which Go programs do not know.
	Umask *fs.FileMode
	// Xattr is the name of an extended attribute that comes with each FileInfo, but for
	// those of Find, without a call of its own; empty: none does.
	Xattr string
	// TLS is nil for plain text, unless Proof names Authorities.
	TLS *tls.Config
	// Proof says by what else than a certificate of TLS the client proves who User is.
	Proof
	// Timeout is how long a call is retried while no namenode answers; 0:
	// DefaultTimeout, at most MaxTimeout. A context may end a call earlier.
	Timeout time.Duration
	// Clock is the holder's clock; nil: the machine's.
	Clock clock.Clock
	// Logger gets what a person should know of (reconnections, leases in
	// jeopardy, lost leases); nil: nothing is logged.
	Logger *slog.Logger
	// BlockSize is the number of data bytes in a full block; 0: the
	// namenode's. It may be smaller than that, not larger.
	BlockSize int64
	// WriteAhead is how many PUTs of a writer are in flight at once; 0:
	// DefaultWriteAhead. A writer needs (WriteAhead+1) × BlockSize bytes.
	WriteAhead int
	// Ahead is asked before a writer has more than one block under way, and returns what
	// gives the room back, or nil if there is none now. Nil: there always is. It must
	// return soon, and it must not call the FS.
	Ahead func() (leave func())
	// ReadAhead is how many blocks a sequential reader fetches ahead; 0:
	// DefaultReadAhead. A reader needs (ReadAhead+1) × BlockSize bytes. All readers of an
	// FS, and what its writers have under way besides a block each, have an eighth of the
	// machine's memory; beyond that, readers fetch what is asked for.
	ReadAhead int
	// NearBlocks says where blocks are kept that were read.
	NearBlocks
	// Conns is the number of gRPC connections to the active namenode; 0: 1.
	Conns int
	// DialOptions are appended to those of the package.
	DialOptions []grpc.DialOption
	// HTTPClient moves the bytes of blocks; nil: one of the FS's own.
	HTTPClient *http.Client

	own
}

// own are what a Config has that is not its user's to set.
type own struct {
	callTimeout time.Duration // of tests: Timeout, but not for New or one attempt
	prover      *prover.Prover
}

type (
	// Proof says by what a client proves who it is, besides the certificate of its TLS.
	Proof = prover.Config
	// Kerberos says how a client proves by Kerberos who it is.
	Kerberos = prover.Kerberos
	// NearBlocks says where a client keeps blocks that it has read, near the reader.
	NearBlocks = blockcache.Near
)

// withDefaults checks the configuration and fills what is empty.
func (c Config) withDefaults() (Config, error) {
	if len(c.Namenodes) == 0 {
		c.Namenodes = []string{DefaultNamenode}
	}
	seen := make(map[string]bool, len(c.Namenodes))
	list := make([]string, 0, len(c.Namenodes))
	for _, a := range c.Namenodes {
		if a == "" {
			return c, fserror.New(fserror.InvalidArgument, "connect", "", "an address in the list of namenodes is empty; give HOST:PORT")
		}
		if !seen[a] {
			seen[a] = true
			list = append(list, a)
		}
	}
	c.Namenodes = list
	c.Clock, c.Logger = cmp.Or[clock.Clock](c.Clock, clock.System{}), cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if err := c.proveUser(); err != nil {
		return c, err
	}
	if c.Token == nil { // else the namenode says whose token it is
		if err := c.loginName(); err != nil {
			return c, err
		}
	}
	if c.Host == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		c.Host = host
	}
	if c.PID == 0 {
		c.PID = int64(os.Getpid())
	}
	if c.Client == "" {
		var b [4]byte
		_, _ = rand.Read(b[:]) // never fails
		c.Client = fmt.Sprintf("%s-%d-%s", c.Host, c.PID, hex.EncodeToString(b[:]))
	}
	if !utf8.ValidString(c.RealUser) || !utf8.ValidString(c.User) || !utf8.ValidString(c.Client) {
		return c, fserror.New(fserror.InvalidArgument, "connect", "", "the user's name %q, the name of who proves it %q or the client's name %q is not valid UTF-8; choose another one", c.User, c.RealUser, c.Client)
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	c.Timeout = min(c.Timeout, MaxTimeout)
	if c.Umask == nil {
		usual := fs.FileMode(0o022)
		c.Umask = &usual
	}
	if c.WriteAhead <= 0 {
		c.WriteAhead = DefaultWriteAhead
	}
	if c.ReadAhead <= 0 {
		c.ReadAhead = DefaultReadAhead
	}
	if c.Conns <= 0 {
		c.Conns = 1
	}
	if c.BlockCache == "" && c.BlockCacheSize != 0 {
		return c, fserror.New(fserror.InvalidArgument, "connect", "", "the size of a block cache is given, and no folder for it").Because(fserror.ReasonBlockCache)
	}
	if c.BlockSize < 0 {
		return c, fserror.New(fserror.InvalidArgument, "connect", "", "a block size of %d bytes makes no sense; give a positive one, or 0 for the namenode's", c.BlockSize)
	}
	return c, nil
}

// loginName has the login name be the user, unless there is one.
func (c *Config) loginName() error {
	if c.User != "" {
		return nil
	}
	u, err := user.Current()
	if err != nil {
		return fserror.New(fserror.InvalidArgument, "connect", "", "the login name is unknown (%v); set Config.User", err)
	}
	c.User = u.Username
	return nil
}

// proveUser opens the credentials. They say who the user is unless User does.
func (c *Config) proveUser() (err error) {
	if c.prover, err = prover.Open(c.Proof, c.TLS, c.Clock, c.Logger); err != nil {
		return fserror.With(err, "connect", "")
	}
	if c.TLS == nil && c.prover.Roots != nil {
		c.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	c.RealUser = cmp.Or(c.RealUser, c.prover.User)
	if c.User = cmp.Or(c.User, c.RealUser); c.User == c.RealUser {
		c.RealUser = ""
	}
	return nil
}

// namenodes is how namenodes are reached by a configuration that is complete.
func (c *Config) namenodes(caller *pb.Caller) namecall.Config {
	return namecall.Config{
		Namenodes: c.Namenodes, Caller: caller, Timeout: cmp.Or(c.callTimeout, c.Timeout),
		Attempt: min(max(c.Timeout/4, time.Second), 15*time.Second), Conns: c.Conns, TLS: c.TLS, Roots: c.prover.Roots, DialOptions: c.DialOptions,
		Token: c.prover.Token, Show: c.prover.Show, OnWait: c.OnWait, Clock: c.Clock,
	}
}
