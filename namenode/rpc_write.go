package namenode

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/leasemanager"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/identity"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/namespace/calls"
	"github.com/leasefs/leasefs/namenode/share"
	"github.com/leasefs/leasefs/namenode/waiting"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	defaultUmask   = 0o022
	defaultDirMode = 0o777 &^ defaultUmask
	maxAllocate    = 16
)

// Create makes a new file, see the wire contract.
func (s *writers) Create(ctx context.Context, r *pb.CreateRequest) (*pb.OpenResponse, error) {
	given := r.GetGivenUp()
	r.GivenUp = nil // a repeated call is known without it
	cache := r.GetCache()
	out, req, wait, err := s.create(ctx, r, engine.Request{Given: givenUp(r.GetCaller().GetSession(), given)})
	waitFor := s.engine.AnswerAsOf
	if cache {
		waitFor = s.engine.WaitDurable // only what is durable is lent
	}
	if werr := waitFor(ctx, wait); werr != nil {
		return nil, werr
	}
	if err != nil {
		return nil, err
	}
	resp := opened(out, req.Holder, req.Close)
	if cache || r.GetDescribe() {
		s.lookAt(ctx, r, resp)
	}
	if cache && r.GetCreations() && r.GetAs() == 0 && len(resp.GetParentKeys()) > 0 {
		var first namespace.InodeID
		resp.Creations, first, resp.Inodes = s.drafts.Delegate(ctx, req.Holder.Session, namespace.InodeID(resp.GetParent().GetInode()), r.GetNumbers())
		resp.FirstInode = uint64(first)
	}
	return resp, nil
}

// lookAt adds to an answer what the file looks like now and, for a session that caches, its
// directory. That nothing is added is no error: the caller asks.
func (s *writers) lookAt(ctx context.Context, r *pb.CreateRequest, resp *pb.OpenResponse) {
	look := func(at namespace.Ref) (*pb.Attr, []*pb.CacheKey) {
		c, err := s.caller(ctx, r.GetCaller())
		if err != nil {
			return nil, nil
		}
		c.Collect = r.GetCache()
		view := s.engine.ViewAnswer
		if r.GetCache() {
			view = s.engine.View // only what is durable is lent
		}
		var a namespace.Attr
		var keys []*pb.CacheKey
		if err := view(ctx, c, func(tx *engine.Tx) (err error) {
			a, err = tx.Tree.Stat(c, at)
			if err == nil && r.GetCache() {
				keys = mayCache(tx, c, r.GetCaller().GetSession(), true)
			}
			return err
		}); err != nil {
			return nil, nil
		}
		return s.attr(a), keys
	}
	if a, keys := look(ref(r.GetAt())); a.GetInode() == resp.GetAttr().GetInode() {
		resp.Attr, resp.Keys = a, keys
	}
	if r.GetCache() {
		resp.Parent, resp.ParentKeys = look(ref(r.GetAt()).Dir())
	}
}

// create does all of a create, by a request that says how, but waiting for the disk; the
// caller waits until the txid it returns is durable, also when there is an error.
func (s *writers) create(ctx context.Context, r *pb.CreateRequest, do engine.Request) (out engine.Outcome, req namespace.CreateRequest, wait uint64, err error) {
	c, id, err := s.asked(ctx, r)
	if err == nil {
		req, err = s.createRequest(c, r)
	}
	if err != nil {
		return out, req, 0, err
	}
	do.Call, do.ID, do.Grows = c, id, true
	do.Plan = func(tx *engine.Tx) (namespace.Op, error) {
		if as := namespace.InodeID(r.GetAs()); as != 0 { // a file that the session has begun to make without asking
			op, err := namespace.PlanCreateAs(tx.Tree, c, as, req)
			if err != nil {
				return nil, err
			}
			return op, s.mayMake(ctx, tx, c, &op.OpCreate, req.Holder)
		}
		op, err := namespace.PlanCreate(tx.Tree, c, req)
		if errors.Is(err, fserror.Exists) {
			err = s.orBeingWritten(tx, c, req, err)
		}
		if err != nil {
			return nil, err
		}
		if err := s.mayMake(ctx, tx, c, op, req.Holder); err != nil {
			return nil, err
		}
		if op.Replace != 0 {
			if err := s.mayReplace(tx, r.GetSteal(), op.Replace, req.Holder); err != nil {
				return nil, err
			}
		}
		if len(req.Xattrs) > 0 {
			return engine.OrNil(namespace.PlanMade(tx.Tree, c, req, op))
		}
		return op, nil
	}
	out, wait, err = s.engine.Submit(ctx, do)
	return out, req, wait, err
}

// mayMake refuses a file that takes more than its user may.
func (s *writers) mayMake(ctx context.Context, tx *engine.Tx, c *namespace.Call, op *namespace.OpCreate, h namespace.Holder) error {
	if !op.Closed {
		if err := s.mayHold(ctx, c, h, nil); err != nil {
			return err
		}
	}
	return s.checkTailBudget(ctx, tx, c, op.User, len(op.Data))
}

// orBeingWritten makes HELD of EXISTS while another writes the file: that name
// may be free, or the file whole, in a moment, and the caller is told whom to
// ask (HDFS: AlreadyBeingCreatedException before FileAlreadyExistsException).
func (s *writers) orBeingWritten(tx *engine.Tx, c *namespace.Call, req namespace.CreateRequest, exists error) error {
	if a, err := tx.Tree.Stat(c, req.At); err == nil {
		if held := s.mayReplace(tx, false, a.ID, req.Holder); held != nil {
			return held
		}
	}
	return exists
}

// createRequest checks what the tree does not.
func (s *writers) createRequest(c *namespace.Call, r *pb.CreateRequest) (namespace.CreateRequest, error) {
	req := namespace.CreateRequest{
		At: ref(r.GetAt()), KeepMode: !r.GetHasMode(),
		Overwrite: r.GetOverwrite() || r.GetSteal(), Parents: r.GetParents(), Close: r.GetClose(),
		Data: r.GetData(), MTime: r.GetMtimeUnixMs(), Lease: namespace.LeaseID(r.GetLease()),
	}
	if len(r.GetData()) > SmallFile {
		return req, fserror.New(fserror.TooLarge, "", "", "a create carries at most %d bytes, not %d; write the rest afterwards", SmallFile, len(r.GetData()))
	}
	if n := len(r.GetXattrs()); n > maxTxnOps || n > 0 && r.GetAs() != 0 {
		return req, fserror.New(fserror.InvalidArgument, "", "", "a create sets at most %d extended attributes, not %d, and none on a file whose number was set aside; set the rest afterwards", maxTxnOps, n)
	}
	for _, x := range r.GetXattrs() {
		req.Xattrs = append(req.Xattrs, calls.Xattr{Name: x.GetName(), Value: x.GetValue()})
	}
	err := checkData(r.GetData(), r.GetDataCrc32C())
	if err != nil {
		return req, err
	}
	if req.Mode, req.DirMode, err = modes(c, r.GetHasMode(), r.GetMode(), r.GetLess(), r.Umask); err != nil {
		return req, err
	}
	h, err := s.holder(r.GetCaller())
	if err != nil {
		return req, err
	}
	req.Holder = h
	_, err = rand.Read(req.Token[:])
	return req, err
}

// checkData refuses bytes that differ from those that were sent.
func checkData(data []byte, want uint32) error {
	if got := blockstore.CRC(data); len(data) > 0 && got != want {
		return fserror.New(fserror.InvalidArgument, "", "", "the request's bytes are damaged: their CRC32C is %08x, the request says %08x; send it again", got, want)
	}
	return nil
}

// modes are those of a file that a request makes, and of missing parents, and sets what c
// takes from them.
func modes(c *namespace.Call, has bool, of, less uint32, umask *uint32) (file, dir uint16, err error) {
	file, dir = 0o666, 0o777
	c.FileLess, c.DirLess = defaultUmask, defaultUmask
	if umask != nil {
		if c.FileLess, err = mode(*umask); err != nil {
			return 0, 0, err
		}
		c.DirLess = c.FileLess
	}
	if has {
		if c.FileLess, err = mode(less); err != nil {
			return 0, 0, err
		}
		file, err = mode(of)
	}
	return file, dir, err
}

func mode(m uint32) (uint16, error) {
	if m > 0o7777 {
		return 0, fserror.New(fserror.InvalidArgument, "", "", "mode %o is over 7777", m)
	}
	return uint16(m & 0o1777), nil //nolint:gosec // masked; setuid and setgid mean nothing here
}

// mayReplace decides whether a create with overwrite, or a rename that spares
// writers, may replace a file that is open: only with steal, or when its holder may
// be dispossessed anyway.
func (s *desk) mayReplace(tx *engine.Tx, steal bool, inode namespace.InodeID, by namespace.Holder) error {
	if f, open := tx.Tree.OpenFile(inode); open && !steal {
		if v, st := s.leases.Take(f, by); v != leasemanager.Takeable && v != leasemanager.Free {
			return s.held(f, st)
		}
	}
	return nil
}

// opened makes the answer of Create and Append, also of a repeated one.
func opened(out engine.Outcome, h namespace.Holder, closed bool) *pb.OpenResponse {
	resp := &pb.OpenResponse{Length: out.Length, BlocksLength: out.BlocksLength, TookOver: out.Flag}
	if !closed {
		resp.Writer = &pb.WriterId{Inode: uint64(out.Inode), Epoch: out.TxID, Token: out.Token[:], Session: h.Session[:]}
	}
	resp.Attr = &pb.Attr{Inode: uint64(out.Inode), Type: pb.FileType_FILE_TYPE_FILE, Length: out.Length}
	return resp
}

// Append opens an existing file for write at its end.
func (s *writers) Append(ctx context.Context, r *pb.AppendRequest) (*pb.OpenResponse, error) {
	c, id, err := s.asked(ctx, r)
	if err != nil {
		return nil, err
	}
	h, err := s.holder(r.GetCaller())
	if err != nil {
		return nil, err
	}
	wait := time.Duration(r.GetWaitMs()) * time.Millisecond
	var token namespace.Token
	if _, err := rand.Read(token[:]); err != nil {
		return nil, err
	}
	var out engine.Outcome
	try := func() (err error) {
		out, err = s.engine.Do(ctx, engine.Request{Call: c, ID: id, Grows: true, Plan: func(tx *engine.Tx) (namespace.Op, error) { return s.planAppend(ctx, tx, c, r, h, token) }})
		return err
	}
	at := ref(r.GetAt())
	queued := wait > 0 && s.mustQueue(ctx, c, id, at, h)
	if !queued {
		err = try()
	}
	if queued || errors.Is(err, fserror.Held) && wait > 0 {
		err = s.waitFor(ctx, c, at, wait, waiting.Call{By: h, Who: taker(ctx, c), Again: r.GetAgain(), Held: err, Try: try})
	}
	if err != nil {
		return nil, err
	}
	return opened(out, h, false), nil
}

func (s *writers) planAppend(ctx context.Context, tx *engine.Tx, c *namespace.Call, r *pb.AppendRequest, h namespace.Holder, token namespace.Token) (namespace.Op, error) {
	lease := namespace.LeaseID(r.GetLease())
	if lease != 0 && !r.GetCreate() {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "only an append that may make the file can attach it to a lease; a file that is there is attached by itself")
	}
	a, err := namespace.PlanOpen(tx.Tree, c, ref(r.GetAt()), r.GetResume())
	if errors.Is(err, fserror.NotFound) && r.GetCreate() {
		if r.GetHasExpectedLength() && r.GetExpectedLength() != 0 {
			return nil, notAtEnd(0, r.GetExpectedLength())
		}
		req := namespace.CreateRequest{At: ref(r.GetAt()), Parents: r.GetParents(), Holder: h, Token: token, Lease: lease}
		if req.Mode, req.DirMode, err = modes(c, r.GetHasMode(), r.GetMode(), 0, r.Umask); err != nil {
			return nil, err
		}
		if err := s.mayHold(ctx, c, h, nil); err != nil {
			return nil, err
		}
		return engine.OrNil(namespace.PlanCreate(tx.Tree, c, req))
	}
	if err != nil {
		return nil, err
	}
	if lease != 0 && a.Lease != lease {
		return nil, fserror.New(fserror.Exists, "", "", "the file exists, and is not attached to lease %x; attach it, or choose another name", uint64(lease))
	}
	if err := s.mayOpen(ctx, tx, c, r, a, h); err != nil {
		return nil, err
	}
	if err := s.mayHold(ctx, c, h, a.Open); err != nil {
		return nil, err
	}
	if r.GetHasExpectedLength() {
		switch t := r.GetExpectedMtimeUnixMs(); {
		case a.Length != r.GetExpectedLength():
			return nil, notAtEnd(a.Length, r.GetExpectedLength())
		case t != 0 && t != a.MTime:
			return nil, &fserror.Error{Kind: fserror.NotAtEnd, Length: a.Length, Message: "the file was changed since, though its length is as expected"}
		}
	}
	if r.GetCut() {
		return engine.OrNil(namespace.PlanCut(tx.Tree, a, r.GetCutLength(), h, token))
	}
	return &namespace.OpOpen{Inode: a.ID, Holder: h, Token: token}, nil
}

// mayOpen returns an error if somebody has the file, and not the caller by the
// writer that it shows.
func (s *writers) mayOpen(ctx context.Context, tx *engine.Tx, c *namespace.Call, r *pb.AppendRequest, a namespace.Attr, h namespace.Holder) error {
	if r.GetWriter() != nil {
		w, err := writerID(r.GetWriter())
		switch {
		case err != nil:
			return err
		case w.Inode != a.ID || a.Open != nil && a.Open.Epoch == w.Epoch && a.Open.Holder.Session != h.Session:
			return fserror.New(fserror.InvalidArgument, "", "", "the writer shown is not one of this file (inode %d) and of this session", a.ID)
		}
		return s.writer(ctx, tx, c, w)
	}
	if a.Open == nil {
		return nil
	}
	v, st := s.leases.Take(*a.Open, h)
	switch v {
	case leasemanager.Takeable:
		return nil
	case leasemanager.SameSession:
		return fserror.New(fserror.Held, "", "", "this client process has the file open for write already; close that writer first")
	}
	return s.held(*a.Open, st)
}

func notAtEnd(length, expected int64) error {
	return &fserror.Error{Kind: fserror.NotAtEnd, Length: length, Message: fmt.Sprintf("the length is %d, not %d as expected", length, expected)}
}

func (s *desk) inodeOf(ctx context.Context, c *namespace.Call, at namespace.Ref) (namespace.InodeID, error) {
	var a namespace.Attr
	err := s.engine.View(ctx, c, func(tx *engine.Tx) (err error) {
		a, err = tx.Tree.Stat(c, at)
		return err
	})
	return a.ID, err
}

// writer checks under the lock that a writer still has its file, and that it is the
// caller's, if it is proven who that is. It renews nothing: the writer's record does, if
// there is one.
func (s *desk) writer(ctx context.Context, tx *engine.Tx, c *namespace.Call, w namespace.Writer) error {
	if err := s.sessions.Explain(tx.Tree.CheckWriter(c, w), w); err != nil {
		return err
	}
	f, _ := tx.Tree.OpenFile(w.Inode)
	return s.proves(identity.Of(ctx), f.Holder.User)
}

// checkTailBudget refuses more bytes in the tail of an owner's file if there is no
// room, or what there is is for owners whose files have little in tails.
func (s *writers) checkTailBudget(ctx context.Context, tx *engine.Tx, c *namespace.Call, owner string, more int) error {
	room := share.Room(s.cfg.TailBudget, tx.Tree.OwnedTails(owner), int64(more), taker(ctx, c).Reserve)
	if more == 0 || tx.Tree.Counts().TailBytes+int64(more) <= room {
		return nil
	}
	return &fserror.Error{Kind: fserror.Retry, Reason: "tail budget", RetryAfter: 100 * time.Millisecond,
		Message: "the namenode's memory for unsealed bytes is used up; commit a block instead, or try again"}
}

// checkTail is checkTailBudget for a file that its writer has open.
func (s *writers) checkTail(ctx context.Context, tx *engine.Tx, inode namespace.InodeID, more int) error {
	f, _ := tx.Tree.OpenFile(inode)
	su, _ := s.engine.Superuser()
	return s.checkTailBudget(ctx, tx, &namespace.Call{User: f.Holder.User, Super: f.Holder.User == su}, tx.Tree.OwnerOf(inode), more)
}

// AppendTail makes a few bytes durable at the end of the file.
func (s *writers) AppendTail(ctx context.Context, r *pb.AppendTailRequest) (*pb.AppendTailResponse, error) {
	w, err := writerID(r.GetWriter())
	if err != nil {
		return nil, err
	}
	if err := checkData(r.GetData(), r.GetCrc32C()); err != nil {
		return nil, err
	}
	if err := s.ownSession(identity.Of(ctx), r.GetWriter().GetSession(), ""); err != nil { // it gives up what that keeps
		return nil, err
	}
	c := &namespace.Call{}
	var length int64
	given := givenUp(r.GetWriter().GetSession(), r.GetGivenUp())
	out, err := s.engine.DoAnswer(ctx, engine.Request{Call: c, Grows: true, Given: given, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := s.writer(ctx, tx, c, w); err != nil {
			return nil, err
		}
		op, n, err := namespace.PlanAppendTail(tx.Tree, c, w, r.GetOffset(), r.GetData(), s.cfg.MaxTail)
		length = n
		if op == nil || err != nil {
			return nil, err
		}
		return op, s.checkTail(ctx, tx, w.Inode, len(r.GetData()))
	}})
	if err != nil {
		return nil, err
	}
	if !out.Noop {
		length = out.Length
	}
	return &pb.AppendTailResponse{Length: length}, nil
}

// AllocateBlock mints keys and signs URLs to put them to.
func (s *writers) AllocateBlock(ctx context.Context, r *pb.AllocateBlockRequest) (*pb.AllocateBlockResponse, error) {
	w, err := writerID(r.GetWriter())
	if err != nil {
		return nil, err
	}
	if n := len(r.GetBlocks()); n < 1 || n > maxAllocate {
		return nil, fserror.New(fserror.InvalidArgument, "", "", "a call allocates 1 to %d blocks, not %d", maxAllocate, n)
	}
	for _, b := range r.GetBlocks() {
		if data, err := blockstore.DataLength(b.GetStoredLength()); err != nil || data > blockstore.MaxBlockSize || data < 1 {
			return nil, fserror.New(fserror.InvalidArgument, "", "", "a block cannot have %d stored bytes (at most %d of data)", b.GetStoredLength(), blockstore.MaxBlockSize)
		}
	}
	if err := s.space.Refuse(); err != nil {
		return nil, err
	}
	c := &namespace.Call{}
	var by namespace.SessionID
	if err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		if err := tx.RefuseInSafeMode(c); err != nil {
			return err
		}
		if f, open := tx.Tree.OpenFile(w.Inode); open {
			by = f.Holder.Session
		}
		return s.writer(ctx, tx, c, w)
	}); err != nil {
		return nil, err
	}
	if err := s.blocks.Admit(ctx, by, len(r.GetBlocks())); err != nil {
		return nil, err
	}
	resp := &pb.AllocateBlockResponse{}
	for _, b := range r.GetBlocks() {
		t, err := s.allocate(w, by, b)
		if err != nil {
			return nil, err
		}
		resp.Targets = append(resp.Targets, t)
	}
	return resp, nil
}

func (s *writers) allocate(w namespace.Writer, by namespace.SessionID, b *pb.BlockIntent) (*pb.BlockTarget, error) {
	key, signed, err := s.blocks.Allocate(w, by, b.GetStoredLength(), b.GetCrc32C())
	if err != nil {
		return nil, err
	}
	return &pb.BlockTarget{Term: key.Term, Seq: key.Seq, Url: signed.URL, Headers: flatten(signed.Header), ExpiresUnixMs: signed.Expires.UnixMilli()}, nil
}

func flatten(h http.Header) map[string]string {
	if len(h) == 0 {
		return nil
	}
	out := make(map[string]string, len(h))
	for k := range h {
		out[k] = h.Get(k)
	}
	return out
}

// Commit makes a block that was put part of the file.
func (s *writers) Commit(ctx context.Context, r *pb.CommitRequest) (*pb.CommitResponse, error) {
	w, err := writerID(r.GetWriter())
	if err != nil {
		return nil, err
	}
	b, err := blockOf(r.GetBlock())
	if err != nil {
		return nil, err
	}
	if err := s.checkStored(ctx, w, b); err != nil {
		return nil, err
	}
	c := &namespace.Call{Super: true} // the writer's token is all the right that it takes
	var now namespace.Attr
	out, err := s.engine.Do(ctx, engine.Request{Call: c, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := s.writer(ctx, tx, c, w); err != nil {
			return nil, err
		}
		op, err := namespace.PlanCommit(tx.Tree, c, w, r.GetOffset(), b, r.GetTailCovered(), r.GetTailCrc32C())
		if err != nil {
			return nil, err
		}
		if op == nil { // this very block is there already
			now, err = tx.Tree.Stat(c, namespace.Inode(w.Inode))
			return nil, err
		}
		if err := s.blocks.MayCommit(w, b); err != nil {
			return nil, err
		}
		return op, nil
	}})
	if err != nil {
		return nil, err
	}
	s.blocks.Drop(b.Key)
	if out.Noop {
		return &pb.CommitResponse{Length: now.Length, BlocksLength: now.Length - now.TailLength}, nil
	}
	return &pb.CommitResponse{Length: out.Length, BlocksLength: out.BlocksLength}, nil
}

// checkStored makes sure that the store has the block whole, before the tree
// says that it exists. Only a writer who may commit the block is told.
func (s *writers) checkStored(ctx context.Context, w namespace.Writer, b namespace.Block) error {
	c := &namespace.Call{Super: true}
	known, user := false, ""
	if err := s.engine.View(ctx, c, func(tx *engine.Tx) error {
		f, _ := tx.Tree.OpenFile(w.Inode)
		known, user = tx.Tree.HasBlock(b.Key), f.Holder.User // it may be this file's: a repeated call
		if err := s.writer(ctx, tx, c, w); err != nil || known {
			return err
		}
		return s.blocks.MayCommit(w, b)
	}); err != nil {
		return err
	}
	info, err := s.store.Stat(ctx, b.Key)
	if errors.Is(err, fserror.NotFound) || err == nil && info.Length != int64(b.Stored) {
		return notStored(b)
	}
	if err != nil || known || !s.blocks.Older(b.Key) { // MayCommit knows enough of others
		return err
	}
	return s.checkOlder(ctx, user, b)
}

// notStored does not say what is stored instead: a key of an earlier reign may be
// another's.
func notStored(b namespace.Block) error {
	return fserror.New(fserror.InvalidArgument, "", "", "block %d/%d is not in the block store with the length and checksum of the request: allocate a new block and upload again", b.Key.Term, b.Key.Seq)
}

// checkOlder reads a block of an earlier reign whole, outside the lock, and
// holds it against the commit: what was allocated then is not known any more,
// so nothing else says what these bytes should be. Each holds a disk up, and a block
// in memory: users take turns, so that one with many, or with wrong checksums, waits himself.
func (s *writers) checkOlder(ctx context.Context, user string, b namespace.Block) error {
	back, err := s.front.Park(ctx, taker(ctx, &namespace.Call{User: user}))
	if err != nil {
		return err
	}
	err = s.older.Begin(ctx, user)
	back()
	if err != nil {
		return err
	}
	defer s.older.End(user)
	if _, err = s.blocks.Fetch(ctx, b); errors.Is(err, fserror.Damaged) {
		return notStored(b)
	}
	return err
}

// Close ends writing.
func (s *writers) Close(ctx context.Context, r *pb.CloseRequest) (*pb.CloseResponse, error) {
	w, err := writerID(r.GetWriter())
	if err != nil {
		return nil, err
	}
	if err := checkData(r.GetData(), r.GetCrc32C()); err != nil {
		return nil, err
	}
	given := givenUp(r.GetWriter().GetSession(), r.GetGivenUp())
	r.GivenUp = nil // a repeated call is known without it
	id, err := callID(r, r.GetCall())
	who, session, call := identity.Of(ctx), r.GetWriter().GetSession(), r.GetCall().GetSession()
	if err == nil { // it has the file open, and gives up what it keeps
		err = s.ownSession(who, session, "")
	}
	if err == nil && who != nil && !bytes.Equal(call, session) { // whose results are kept
		err = s.ownSession(who, call, who.User)
	}
	if err != nil {
		return nil, err
	}
	c := &namespace.Call{}
	out, err := s.engine.DoAnswer(ctx, engine.Request{Call: c, ID: id, Grows: len(r.GetData()) > 0, Given: given, Plan: func(tx *engine.Tx) (namespace.Op, error) {
		if err := s.writer(ctx, tx, c, w); err != nil {
			return nil, err
		}
		op, err := namespace.PlanClose(tx.Tree, c, w, r.GetOffset(), r.GetData(), r.GetLength(), r.GetMtimeUnixMs(), s.cfg.MaxTail)
		if err != nil {
			return nil, err
		}
		if len(op.Data) > 0 {
			if err := s.checkTail(ctx, tx, w.Inode, len(op.Data)); err != nil {
				return nil, err
			}
		}
		return op, nil
	}})
	if err != nil {
		return nil, err
	}
	return &pb.CloseResponse{Length: out.Length}, nil
}
