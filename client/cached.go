package client

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// readKind is what was asked about a path or inode.
type readKind uint8

const (
	readStat readKind = iota
	readLstat
	readFile
	readXattrs
	readNames     // which names a directory may have, see mayHave
	readCreations // the right to the creations of a directory
)

// readKey is a request whose answer may be kept.
type readKey struct {
	kind  readKind
	path  string
	inode uint64 // instead of path
}

// at is what is asked about.
func (k readKey) at(ctx context.Context) *pb.Ref {
	switch {
	case k.inode != 0:
		return pb.Inode(k.inode)
	case k.kind == readLstat:
		return at(ctx, k.path)
	}
	return follow(ctx, k.path)
}

// kept is an answer that is kept: at most one of the first four is set.
type kept struct {
	attr    *pb.Attr
	xattrs  *pb.XattrsResponse
	missing *fserror.Error
	file    *pb.GetFileResponse
	names   *mayHave
	until   time.Time // of a file: when its URLs are over
}

// readCache keeps answers for as long as the namenode promises that nothing of
// them changes.
type readCache = readcache.Cache[readKey, kept]

// newReadCache returns nil if the configuration wants none.
func newReadCache(cfg *Config) *readCache {
	if !cfg.Cache {
		return nil
	}
	return readcache.New(readcache.Config[readKey, kept]{
		Clock: cfg.Clock, MaxEntries: cfg.CacheEntries, MaxBytes: cfg.CacheBytes,
		Outlives: func(k readKey) bool { return k.kind == readNames || k.kind == readCreations },
		Size: func(k readKey, v kept) int64 {
			size := int64(len(k.path)) + 200
			if v.names != nil {
				size += mayHaveBits / 8
			}
			if v.file != nil {
				size += int64(len(v.file.Tail)) + 300*int64(len(v.file.Blocks))
			}
			for _, x := range v.xattrs.GetXattrs() {
				size += int64(len(x.GetName())+len(x.GetValue())) + 100
			}
			return size
		},
	})
}

// answers are what this client has read and may answer from, and what it gives up
// of that for its own changes.
type answers struct {
	cache    *readCache // nil: nothing is kept
	stream   func() *session.Stream
	onRevoke func(Revocation)
	onGiveUp func(Revocation) bool
}

// beginRead is called before a read that may be kept is sent.
func (a *answers) beginRead() readcache.Ticket {
	if a.cache == nil {
		return readcache.Ticket{}
	}
	return a.cache.Begin()
}

// keep keeps an answer, if the namenode allows it, and tells whether it did.
func (a *answers) keep(t readcache.Ticket, k readKey, v kept, keys []*pb.CacheKey) bool {
	if a.cache == nil || len(keys) == 0 {
		return false
	}
	return a.cache.Put(t, k, v, cacheKeys(keys))
}

func (a *answers) kept(k readKey) (kept, bool) {
	if a.cache == nil {
		return kept{}, false
	}
	v, ok := a.cache.Get(k)
	if ok && v.file != nil && time.Now().After(v.until) {
		return kept{}, false
	}
	return v, ok
}

// keptAt is kept for an answer that counts only while the context's places are right:
// both have to be so at one moment.
func (a *answers) keptAt(ctx context.Context, k readKey) (kept, bool) {
	v, ok := a.kept(k)
	if !ok || k.inode != 0 || len(placesOf(ctx)) == 0 {
		return v, ok
	}
	if !a.keptPlaces(ctx) {
		return kept{}, false
	}
	again, ok := a.kept(k)
	return v, ok && again.attr == v.attr && again.missing == v.missing
}

func cacheKeys(keys []*pb.CacheKey) []readcache.Key {
	out := make([]readcache.Key, len(keys))
	for i, k := range keys {
		out[i] = readcache.Key{Kind: uint8(k.GetKind()), Inode: k.GetInode(), Name: k.GetName()} //nolint:gosec // a small number; one that is not matches nothing
	}
	return out
}

// keptStat is stat through the cache. held tells whether the answer, that there
// is nothing included, is kept; txid is FileInfo.TxID.
func (f *engine) keptStat(ctx context.Context, op, path string, k readKey) (attr *pb.Attr, txid uint64, held bool, err error) {
	straight := k.inode == 0 && !followsLinks(ctx) // what is kept may have been found through links
	if v, ok := f.keptAt(ctx, k); ok && !straight {
		if v.missing != nil {
			e := *v.missing
			e.Op, e.Path = op, path
			return nil, 0, true, &e
		}
		return v.attr, 0, true, nil
	}
	if k.inode == 0 && !straight && f.keptPlaces(ctx) && f.absent(k.path) {
		return nil, 0, true, errAbsent(op, path)
	}
	req := &pb.StatRequest{Caller: f.callerIn(ctx), At: k.at(ctx), Cache: f.cache != nil}
	resp := new(pb.StatResponse)
	ticket := f.beginRead()
	if err := f.nn.Do(ctx, &namecall.Call{Op: op, Path: path}, pb.Namenode_Stat_FullMethodName, req, resp); err != nil {
		return nil, 0, false, err
	}
	if d := resp.GetMissing(); d != nil {
		e := wire.FromDetail(d)
		held = f.keep(ticket, k, kept{missing: e}, resp.GetKeys())
		if held && k.inode == 0 {
			f.seenAbsent(ticket, k.path)
		}
		c := *e
		c.Op, c.Path = op, path
		return nil, 0, held, &c
	}
	held = f.keep(ticket, k, kept{attr: resp.GetAttr()}, resp.GetKeys())
	return resp.GetAttr(), resp.GetTxid(), held, nil
}

// keptFile is getFile through the cache; held tells whether the answer is kept. Only
// whole answers are: a reader of a long block list asks for the rest.
func (f *engine) keptFile(ctx context.Context, op, path string, k readKey) (resp *pb.GetFileResponse, at time.Time, held bool, err error) {
	if v, ok := f.kept(k); ok && (k.inode != 0 || followsLinks(ctx)) {
		return v.file, v.until.Add(-ms(v.file.GetUrlsExpireMs()) / 2), true, nil
	}
	ticket := f.beginRead()
	resp, at, err = f.getFile(ctx, op, path, &pb.GetFileRequest{At: k.at(ctx), Cache: f.cache != nil})
	if err == nil && !resp.GetMoreBlocks() {
		held = f.keep(ticket, k, kept{file: resp, until: at.Add(ms(resp.GetUrlsExpireMs()) / 2)}, resp.GetKeys())
	}
	return resp, at, held, err
}
