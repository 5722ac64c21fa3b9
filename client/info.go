package client

import (
	"io/fs"
	"time"

	"github.com/leasefs/leasefs/internal/blockcache"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/readcache"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Info is what an FS is, and what it may do, for now: another namenode can have
// other limits.
type Info struct {
	User   string // as whom it asks
	Client string // the name under which others see it
	// Session is the name of its session, hexadecimal, as listings of leases show
	// it. (The session's id is a secret of this process.)
	Session     string
	NamespaceID string      // given when the namespace was formatted
	DirMode     fs.FileMode // of directories that it makes without being told a mode
	BlockSize   int64       // data bytes in a full block that it writes
	// MaxWholeFile is up to how many bytes WriteFile and WriteFiles take in one call.
	MaxWholeFile int64
	// SoftLimit and HardLimit are those of its lease, as the namenode has them.
	SoftLimit, HardLimit time.Duration
}

// Info tells what the FS is.
func (f *FS) Info() Info { return f.about() }

func (f *engine) about() Info {
	i, w := f.info, f.session.Welcome()
	i.NamespaceID = w.GetNamespaceId()
	if i.BlockSize = w.GetBlockSize(); i.BlockSize <= 0 {
		i.BlockSize = blockstore.DefaultBlockSize
	}
	if own := f.cfg.BlockSize; own > 0 {
		i.BlockSize = min(i.BlockSize, own)
	}
	i.MaxWholeFile = min(w.GetSmallFile(), int64(maxPiece(w)))
	if t := w.GetMaxTail(); t > 0 {
		i.MaxWholeFile = min(i.MaxWholeFile, t)
	}
	i.SoftLimit, i.HardLimit = f.session.SoftLimit(), f.session.HardLimit()
	return i
}

// maxPiece is how many bytes of data a message may carry.
func maxPiece(w *pb.Welcome) int {
	n := w.GetMaxMessage()
	if n <= 0 {
		n = 1 << 20
	}
	// Room for the path and the rest of the message.
	const headroom = 4 << 10
	return int(max(n-headroom-fspath.MaxPath, n/2))
}

// Stats counts since New, for the metrics of a long-lived program.
type Stats struct {
	Retries         uint64 // calls sent again
	Renewals        uint64 // successful renewals of the session's lease
	RenewalFailures uint64 // attempts that were not
	Jeopardies      uint64 // times that the lease went unrenewed past its soft limit
	LostLeases      uint64 // writers whose lease was lost
	Sessions        uint64 // session streams opened; above 1: reconnections
	Cache           CacheStats
	BlockCache      BlockCacheStats
}

// CacheStats are figures of the read cache of an FS, all zero without one.
type CacheStats = readcache.Stats

// BlockCacheStats are figures of the block cache of an FS, all zero without one.
type BlockCacheStats = blockcache.Stats

// Stats returns the counters.
func (f *FS) Stats() Stats {
	c := f.session.Stats()
	s := Stats{
		Retries: f.nn.Retries(), Renewals: c.Renewals, RenewalFailures: c.Failures,
		Jeopardies: c.Jeopardies, LostLeases: c.Lost, Sessions: c.Opened, BlockCache: f.near.Stats(),
	}
	if f.cache != nil {
		s.Cache = f.cache.Stats()
	}
	return s
}
