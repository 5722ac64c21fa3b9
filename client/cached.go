package client

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/leasefs/leasefs/internal/delegation"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
	"github.com/leasefs/leasefs/internal/session"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// readKind is what was asked.
type readKind uint8

const (
	readName     readKind = iota // which inode has a name, or that there is none
	readFollowed                 // likewise, with a symbolic link at the end followed
	readAttr                     // attributes of an inode
	readFile                     // by inode or path, as the next one
	readXattrs
	readACL
	readNames      // which names a directory may have
	readDelegation // the delegation of a directory
)

// readKey is a request whose answer may be kept. What a name leads to and what is
// there are two of them: a change of one leaves the other.
type readKey struct {
	kind readKind
	at   door.Ref
	as   string // for whom, see asOf: another may not see it
}

// stat is the request for the attributes of what a reference leads to.
func stat(as string, r door.Ref) readKey {
	if r.Path == "" {
		return readKey{readAttr, r, as}
	}
	return readKey{readName, r, as}
}

// ref is what is asked about.
func (k readKey) ref(ctx context.Context) *pb.Ref {
	if k.kind == readName || k.kind == readAttr {
		return at(ctx, k.at)
	}
	return follow(ctx, k.at)
}

// throughLinks tells whether the answer may have been found through symbolic links
// that a call under ctx does not follow.
func (k readKey) throughLinks(ctx context.Context) bool { return k.at.Base == 0 && !followsLinks(ctx) }

// kept is an answer that is kept: at most one of the first six is set.
type kept struct {
	inode   uint64 // that has the name: see Leads of the cache
	as      string // with inode: of the key
	attr    *pb.Attr
	xattrs  *pb.XattrsResponse
	acl     *pb.AclResponse
	missing *fserror.Error
	file    *pb.GetFileResponse
	names   *delegation.Names
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
		Leads:    func(v kept) (readKey, bool) { return readKey{readAttr, door.Inode(v.inode), v.as}, v.inode != 0 },
		Outlives: func(k readKey) bool { return k.kind == readNames || k.kind == readDelegation },
		Size: func(k readKey, v kept) int64 {
			size := int64(len(k.at.Path)+len(k.as)+len(v.attr.GetXattr())) + 200
			if v.names != nil {
				size += delegation.NamesBytes
			}
			if v.file != nil {
				size += int64(len(v.file.Tail)+len(v.file.GetAttr().GetXattr())) + 300*int64(len(v.file.Blocks))
			}
			for _, x := range v.xattrs.GetXattrs() {
				size += int64(len(x.GetName())+len(x.GetValue())) + 100
			}
			for _, e := range v.acl.GetEntries() {
				size += int64(len(e.GetName())) + 100
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
	return a.cache.Ticket()
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

// keepStat keeps the answer to a stat: what has the name, if it was asked by name, and
// its attributes, which do not depend on that.
func keepStat(k readKey, a *pb.Attr, keys []*pb.CacheKey, put func(readKey, kept, []readcache.Key) bool) bool {
	if len(keys) == 0 {
		return false
	}
	all := cacheKeys(keys)
	of := slices.DeleteFunc(slices.Clone(all), func(d readcache.Key) bool { return d.Kind == keyName })
	ok := put(readKey{readAttr, door.Inode(a.GetInode()), k.as}, kept{attr: a}, of)
	if k.kind == readAttr {
		return ok
	}
	if k.at.Base != 0 { // a path may lead through what it leads to
		all = slices.DeleteFunc(all, func(d readcache.Key) bool { return d.Kind != keyLease && d.Inode == a.GetInode() })
	}
	return put(k, kept{inode: a.GetInode(), as: k.as}, all) && ok
}

// keepStat keeps what was read since a ticket was taken.
func (a *answers) keepStat(t readcache.Ticket, k readKey, attr *pb.Attr, keys []*pb.CacheKey) bool {
	return a.cache != nil && keepStat(k, attr, keys, func(k readKey, v kept, deps []readcache.Key) bool { return a.cache.Put(t, k, v, deps) })
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
func (f *engine) keptStat(ctx context.Context, op string, k readKey) (attr *pb.Attr, txid uint64, held bool, err error) {
	path, links := k.at.Path, k.throughLinks(ctx)
	missing := func(why fserror.Error) error {
		why.Op, why.Path = op, cmp.Or(why.Path, path)
		return &why
	}
	if v, ok := f.kept(k); ok && !links {
		if v.missing != nil {
			return nil, 0, true, missing(*v.missing)
		}
		return v.attr, 0, true, nil
	}
	if !links && f.absent(ctx, k.at) {
		return nil, 0, true, fserror.New(fserror.NotFound, op, path, "no such file or directory")
	}
	req := &pb.StatRequest{Caller: f.by(ctx), At: k.ref(ctx), Cache: f.cache != nil}
	resp := new(pb.StatResponse)
	ticket := f.beginRead()
	if err := f.nn.Do(ctx, &namecall.Call{Op: op, Path: path}, pb.Namenode_Stat_FullMethodName, req, resp); err != nil {
		return nil, 0, false, err
	}
	if d := resp.GetMissing(); d != nil {
		e := wire.FromDetail(d)
		held = f.keep(ticket, k, kept{missing: e}, resp.GetKeys())
		if held {
			f.seenAbsent(ticket, k)
		}
		return nil, 0, held, missing(*e)
	}
	return resp.GetAttr(), resp.GetTxid(), f.keepStat(ticket, k, resp.GetAttr(), resp.GetKeys()), nil
}

// keptFile is getFile through the cache; held tells whether the answer is kept. Only
// whole answers are: a reader of a long block list asks for the rest.
func (f *engine) keptFile(ctx context.Context, op, path string, k readKey) (resp *pb.GetFileResponse, at time.Time, held bool, err error) {
	if v, ok := f.kept(k); ok && !k.throughLinks(ctx) {
		return v.file, v.until.Add(-ms(v.file.GetUrlsExpireMs()) / 2), true, nil
	}
	ticket := f.beginRead()
	resp, at, err = f.getFile(ctx, op, path, &pb.GetFileRequest{At: k.ref(ctx), Cache: f.cache != nil})
	if err == nil && !resp.GetMoreBlocks() {
		held = f.keep(ticket, k, kept{file: resp, until: at.Add(ms(resp.GetUrlsExpireMs()) / 2)}, resp.GetKeys())
	}
	return resp, at, held, err
}
