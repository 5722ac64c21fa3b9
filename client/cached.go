package client

import (
	"context"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/namecall"
	"github.com/leasefs/leasefs/internal/readcache"
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

// beginRead is called before a read that may be kept is sent.
func (f *FS) beginRead() readcache.Ticket {
	if f.cache == nil {
		return readcache.Ticket{}
	}
	return f.cache.Begin()
}

// keep keeps an answer, if the namenode allows it, and tells whether it did.
func (f *FS) keep(t readcache.Ticket, k readKey, v kept, keys []*pb.CacheKey) bool {
	if f.cache == nil || len(keys) == 0 {
		return false
	}
	return f.cache.Put(t, k, v, cacheKeys(keys))
}

func (f *FS) kept(k readKey) (kept, bool) {
	if f.cache == nil {
		return kept{}, false
	}
	v, ok := f.cache.Get(k)
	if ok && v.file != nil && time.Now().After(v.until) {
		return kept{}, false
	}
	return v, ok
}

// keptAt is kept for an answer that counts only while the context's places are right:
// both have to be so at one moment.
func (f *FS) keptAt(ctx context.Context, k readKey) (kept, bool) {
	v, ok := f.kept(k)
	if !ok || k.inode != 0 || len(placesOf(ctx)) == 0 {
		return v, ok
	}
	if !f.keptPlaces(ctx) {
		return kept{}, false
	}
	again, ok := f.kept(k)
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
func (f *FS) keptStat(ctx context.Context, op, path string, k readKey) (attr *pb.Attr, txid uint64, held bool, err error) {
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
func (f *FS) keptFile(ctx context.Context, op, path string, k readKey) (resp *pb.GetFileResponse, at time.Time, held bool, err error) {
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

// cacheLoop renews the term of the read cache while a stream is up.
func (f *FS) cacheLoop(l *line, term time.Duration) {
	period := max(term/3, 5*time.Millisecond)
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-l.gone:
			return
		case <-t.C:
		}
		seq := l.beginTerm(f.cache.Now())
		if l.sendQuiet(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheRenew{CacheRenew: &pb.CacheRenew{Seq: seq}}}) != nil {
			return
		}
		select {
		case <-l.gone:
			return
		case granted := <-l.terms:
			if granted {
				t.Reset(period)
			} else {
				t.Reset(min(period, 100*time.Millisecond)) // a revocation is under way
			}
		}
	}
}

// beginTerm notes when a renewal of the cache's term was sent.
func (l *line) beginTerm(now readcache.Reading) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.termSeq++
	l.termSent = now
	return l.termSeq
}

// sendQuiet sends a message on the stream, one sender at a time.
func (l *line) sendQuiet(m *pb.SessionRequest) error {
	l.sendMu.Lock()
	defer l.sendMu.Unlock()
	return l.stream.Send(m)
}

// cacheMessage takes in what the namenode says about the cache; false if the
// message is about something else.
func (f *FS) cacheMessage(l *line, m *pb.SessionResponse) bool {
	switch {
	case f.cache == nil:
		return false
	case m.GetCacheTerm() != nil:
		t := m.GetCacheTerm()
		l.mu.Lock()
		sent, current := l.termSent, t.GetSeq() == l.termSeq
		l.mu.Unlock()
		if current {
			f.cache.Extend(sent, ms(t.GetTermMs()))
			select {
			case l.terms <- t.GetTermMs() > 0:
			default:
			}
		}
	case m.GetCacheRevocation() != nil:
		r := m.GetCacheRevocation()
		keys := cacheKeys(r.GetKeys())
		f.cache.Revoke(keys, r.GetAll())
		// Sending can wait for a slow network; the stream is read on meanwhile.
		if l.mustAck(r.GetSeq(), revocationOf(keys, r.GetAll())) && !f.goRun(func() { l.sendAcks(f.revoked, f.drafts.in) }) {
			l.cancel() // the client is closed
		}
	default:
		return false
	}
	return true
}

// mustAck notes that revocations up to seq are to be acknowledged; true if
// nobody is doing so yet.
func (l *line) mustAck(seq uint64, r Revocation) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ackSeq = max(l.ackSeq, seq)
	l.toTell = append(l.toTell, r)
	if l.acking {
		return false
	}
	l.acking = true
	return true
}

// sendAcks acknowledges until all that came is: one message for many.
// tell is called with each revocation before it is acknowledged; begun is what
// drafts the acknowledgement names for it.
func (l *line) sendAcks(tell func(Revocation), begun func(Revocation) []*pb.Draft) {
	for sent := uint64(0); ; {
		l.mu.Lock()
		if l.ackSeq == sent {
			l.acking = false
			l.mu.Unlock()
			return
		}
		sent = l.ackSeq
		untold := l.toTell
		l.toTell = nil
		l.mu.Unlock()
		ack := &pb.CacheAck{Seq: sent}
		for _, r := range untold {
			tell(r)
			ack.Drafts = append(ack.Drafts, begun(r)...)
		}
		if l.sendQuiet(&pb.SessionRequest{Kind: &pb.SessionRequest_CacheAck{CacheAck: ack}}) != nil {
			return // the stream is broken: whoever reads it finds out
		}
	}
}
