package client

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// waitSlice is how long one call waits at the namenode for a holder.
const waitSlice = 20 * time.Second

// Create makes a new file and opens it for write. Options: WithMode, WithOwner,
// WithOverwrite, WithSteal, WithParents, WithMTime, WithLease, WithXattrs. Exists if the path is
// taken, Held if another has the file to be overwritten. The context governs
// the call, not the Writer. If it ends before the answer, the file may be there, or
// have been emptied; it is not left open: that is seen to in the background.
func (f *FS) Create(ctx context.Context, path string, opts ...OpenOption) (*Writer, error) {
	w, _, err := f.create(ctx, door.At(path), "", opts)
	return w, err
}

// create also returns what the answer says of the file.
func (f *engine) create(ctx context.Context, r door.Ref, path string, opts []OpenOption) (*Writer, *pb.Attr, error) {
	asked := f.session.Now()
	req, resp, err := f.createCall(ctx, r, opts, false)
	if f.heldByItself(err) && f.giveback.Settle(ctx) {
		req, resp, err = f.createCall(ctx, r, opts, false)
	}
	if err != nil {
		return nil, nil, err
	}
	w, err := f.newWriter(ctx, "create", cmp.Or(path, req.At.Path), resp, asked, req.MtimeUnixMs)
	return w, resp.GetAttr(), err
}

// heldByItself reports whether a file may be held by a call of this client whose answer was lost.
func (f *engine) heldByItself(err error) bool {
	var e *fserror.Error
	if !errors.As(err, &e) || e.Kind != fserror.Held {
		return false
	}
	h := e.Holder
	return h == nil || h.Client == f.caller.GetClient() && h.Host == f.caller.GetHost() && h.PID == f.caller.GetPid()
}

// createCall sends a create, of a file that is closed or not, and keeps what its
// reply says.
func (f *engine) createCall(ctx context.Context, r door.Ref, opts []OpenOption, closed bool) (*pb.CreateRequest, *pb.OpenResponse, error) {
	r, err := cleanRef("create", r)
	if err == nil && !closed {
		err = f.mayOpen("create", r.Path)
	}
	if err != nil {
		return nil, nil, err
	}
	o := gather(opts)
	req, resp := f.createRequest(f.by(ctx), o.at(ctx, r), &o), new(pb.OpenResponse)
	req.Call, req.Close = f.ids.Next(), closed
	defer f.ids.Retire(req.Call)
	c := &namecall.Call{Op: "create", Path: r.Path, Mutates: true}
	err = f.sendCreate(ctx, c, r, req, resp)
	f.giveback.Opening(c, req.Call, err)
	return req, resp, err
}

// at is where Create makes a file: with WithOverwrite where a link at the end of the
// path leads, as open(2) with O_TRUNC does; else such a link is in the way.
func (o *openOptions) at(ctx context.Context, r door.Ref) *pb.Ref {
	if o.replaces() {
		return follow(ctx, r)
	}
	return at(ctx, r)
}

func (f *engine) createRequest(caller *pb.Caller, at *pb.Ref, o *openOptions) *pb.CreateRequest {
	req := &pb.CreateRequest{
		Caller: caller, At: at, Mode: filemode.Unix(o.mode), HasMode: o.hasMode, Less: filemode.Unix(o.less),
		Overwrite: o.overwrite, Steal: o.steal, Parents: o.parents, Lease: uint64(o.lease),
		Owner: o.owner.wire(), Umask: proto.Uint32(filemode.Unix(*f.cfg.Umask)), Describe: o.describe,
	}
	if !o.mtime.IsZero() {
		req.MtimeUnixMs = o.mtime.UnixMilli()
	}
	for _, x := range o.xattrs {
		// The namenode refuses the NUL that replaces bytes that are not UTF-8.
		req.Xattrs = append(req.Xattrs, &pb.TxXattr{Name: strings.ToValidUTF8(x.Name, "\x00"), Value: x.Value})
	}
	return req
}

// Append opens an existing file for write at its end. Options:
// WithExpectedLength, WithExpectedModTime, WithCut, WithCreate, WithParents,
// WithMode, WithWait, and with WithCreate also WithLease: a file that exists must be
// attached to that lease, else Exists. NotFound,
// IsDirectory, Held (another is writing; the error says who and until when),
// NotAtEnd (with WithExpectedLength; the error has the true length). A holder
// past its soft limit is replaced in this call: Writer.TookOver. If the context
// ends before the answer, the file is not left open, as of Create.
func (f *FS) Append(ctx context.Context, path string, opts ...OpenOption) (*Writer, error) {
	path, err := clean("append", path)
	if err != nil {
		return nil, err
	}
	o := gather(opts)
	return f.append(ctx, path, &o)
}

func (f *engine) append(ctx context.Context, path string, o *openOptions) (*Writer, error) {
	until, settled := time.Now().Add(o.wait), false
	for {
		if err := f.mayOpen("append", path); err != nil {
			return nil, err
		}
		// The lease may be as old as the wait was long: well below its end.
		wait := min(max(time.Until(until), 0), waitSlice, max(f.session.HardLimit()/4, 100*time.Millisecond))
		asked := time.Now()
		w, err := f.appendOnce(ctx, path, o, wait, time.Until(until) > wait)
		if !settled && f.heldByItself(err) && f.giveback.Settle(ctx) {
			settled = true
			continue
		}
		if err == nil || !errors.Is(err, fserror.Held) || time.Until(until) <= 0 {
			return w, err
		}
		if time.Since(asked) >= wait/2 {
			continue // at once: the place in the queue is kept for a moment
		}
		// A namenode that does not wait is not asked in a loop without pause.
		if !f.nn.Sleep(ctx, min(namecall.Backoff(3), max(time.Until(until), 0))) {
			return nil, fserror.Ended(ctx, "append", path)
		}
	}
}

func (f *engine) appendOnce(ctx context.Context, path string, o *openOptions, wait time.Duration, again bool) (*Writer, error) {
	req := &pb.AppendRequest{
		Call: f.ids.Next(), Caller: f.by(ctx), At: followPath(ctx, path), HasExpectedLength: o.hasLength, ExpectedLength: o.expected,
		Create: o.create, Parents: o.parents, Mode: filemode.Unix(o.mode), HasMode: o.hasMode, WaitMs: wait.Milliseconds(), Again: again,
		Cut: o.cut, CutLength: o.length, Writer: o.writer, Resume: o.resume, Umask: proto.Uint32(filemode.Unix(*f.cfg.Umask)), Lease: uint64(o.lease),
	}
	if o.inode != 0 {
		req.At = pb.Inode(o.inode)
	}
	if !o.unchanged.IsZero() {
		req.ExpectedMtimeUnixMs = o.unchanged.UnixMilli()
	}
	defer f.ids.Retire(req.Call)
	c, asked := namecall.Call{Op: "append", Path: path, Mutates: true, Wait: wait}, f.session.Now()
	resp := new(pb.OpenResponse)
	if err := f.nn.Do(ctx, &c, pb.Namenode_Append_FullMethodName, req, resp); err != nil {
		if !o.resume { // what an earlier process has opened stays open for who resumes it next
			f.giveback.Opening(&c, req.Call, err)
		}
		return nil, err
	}
	return f.newWriter(ctx, "append", path, resp, asked, 0)
}

// mayOpen refuses new files once Close has begun.
func (f *engine) mayOpen(op, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return fserror.New(fserror.Closed, op, path, "the client is closed")
	}
	return nil
}

// WriteFile makes a new file with the data and closes it. Options as of
// Create; an existing file needs WithOverwrite. It is there whole or not at
// all: up to MaxWholeFile bytes it is one call, a longer file is written as by
// WriteFrom.
func (f *FS) WriteFile(ctx context.Context, path string, data []byte, opts ...OpenOption) error {
	if int64(len(data)) > f.Info().MaxWholeFile {
		return f.scratch.writeBytes(ctx, path, data, opts)
	}
	path, err := clean("create", path)
	if err != nil {
		return err
	}
	o := gather(opts)
	req := f.createRequest(f.by(ctx), o.at(ctx, door.At(path)), &o)
	req.Data, req.DataCrc32C, req.Close = data, blockstore.CRC(data), true
	req.Call = f.ids.Next()
	defer f.ids.Retire(req.Call)
	c := namecall.Call{Op: "create", Path: path, Mutates: true, TailToo: len(data) > 0}
	err = f.nn.Do(ctx, &c, pb.Namenode_Create_FullMethodName, req, new(pb.OpenResponse))
	if len(data) > 0 && tailRefused(err) {
		return f.scratch.writeBytes(ctx, path, data, opts) // as a block
	}
	return err
}

// writeBytes is write for what is in memory.
func (s *scratch) writeBytes(ctx context.Context, path string, data []byte, opts []OpenOption) error {
	return s.write(ctx, path, opts, func(w *Writer) error {
		_, err := w.WriteContext(ctx, data)
		return err
	})
}

// CloseFile completes a file that an earlier process of the same user and
// client name left open, and returns its length in bytes. Held if another
// client has it, or that process still lives. A file that is closed already is
// no error; NotFound if there is none.
func (f *FS) CloseFile(ctx context.Context, path string) (length int64, err error) {
	path, err = clean("close", path)
	if err != nil {
		return 0, err
	}
	req := &pb.CloseAbandonedRequest{Call: f.ids.Next(), Caller: f.by(ctx), At: followPath(ctx, path)}
	defer f.ids.Retire(req.Call)
	resp := new(pb.CloseResponse)
	err = f.nn.Do(ctx, &namecall.Call{Op: "close", Path: path, Mutates: true}, pb.Namenode_CloseAbandoned_FullMethodName, req, resp)
	return resp.GetLength(), err
}

// Recover closes a file that its writer abandoned, at its flushed length. A
// holder that lives is only touched with force: Held otherwise. A file that is
// closed already is no error.
func (f *FS) Recover(ctx context.Context, path string, force bool) (RecoverResult, error) {
	path, err := clean("recover", path)
	if err != nil {
		return RecoverResult{}, err
	}
	return f.recoverEpoch(ctx, path, followPath(ctx, path), force, 0)
}

// recoverEpoch is Recover of what is open under one epoch only (0: any). The path is for errors.
func (f *engine) recoverEpoch(ctx context.Context, path string, at *pb.Ref, force bool, epoch uint64) (RecoverResult, error) {
	req, resp := &pb.RecoverRequest{Call: f.ids.Next(), Caller: f.by(ctx), At: at, Force: force, Epoch: epoch}, new(pb.RecoverResponse)
	defer f.ids.Retire(req.Call)
	err := f.nn.Do(ctx, &namecall.Call{Op: "recover", Path: path, Mutates: true}, pb.Namenode_Recover_FullMethodName, req, resp)
	return RecoverResult{WasOpen: resp.GetWasOpen(), Length: resp.GetLength(), Epoch: resp.GetEpoch()}, err
}

// tailRefused reports whether the namenode has no room for bytes in a tail, so
// that they have to become a block. Where nothing is taken on at all (overload,
// a full disk) a block would be no better.
func tailRefused(err error) bool {
	return fserror.KindOf(err) == fserror.TooLarge || fserror.Has(err, fserror.Retry, namecall.TailBudget)
}
