package delegation

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxDraft is how many bytes a draft takes.
const maxDraft = 64 << 10

// Draft is a new file that nobody else sees, and for which this client has made no call
// yet. The directory is delegated to it, so that another who wants the name is told that
// it is held. It becomes a file with Close, or a Writer with Open, of which one must be
// called, once. Not safe for concurrent use, but for Open and Close, of which the first
// one counts.
type Draft[W Writer] struct {
	table *Table[W]
	file  File
	inode uint64
	begun time.Time

	mu    sync.Mutex
	data  []byte
	ended bool
}

// Path is the path under which the draft was begun, for errors.
func (d *Draft[W]) Path() string { return d.file.Path }

// Name is its name in the directory.
func (d *Draft[W]) Name() string { return d.file.Name }

// Inode is the number that the file will have.
func (d *Draft[W]) Inode() uint64 { return d.inode }

// Dir is the number of its directory.
func (d *Draft[W]) Dir() uint64 { return d.file.Dir.GetInode() }

// Begun is when it was begun, in whole milliseconds.
func (d *Draft[W]) Begun() time.Time { return d.begun }

// Length is how many bytes were written.
func (d *Draft[W]) Length() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return int64(len(d.data))
}

// Attr is what the file will be like if it is made now.
func (d *Draft[W]) Attr() *pb.Attr {
	mode := d.file.Mode
	if !d.file.HasMode {
		mode = 0o644
	}
	return &pb.Attr{
		Inode: d.inode, Type: pb.FileType_FILE_TYPE_FILE, Mode: mode,
		User:        cmp.Or(d.file.Owner.GetUser(), d.file.Caller.GetUser()),
		Group:       cmp.Or(d.file.Owner.GetGroup(), d.file.Dir.GetGroup()),
		MtimeUnixMs: d.begun.UnixMilli(), Length: d.Length(),
	}
}

// Write appends the pieces, or none of them: false if they are too many for a
// draft (64 KiB in all), or it has ended. Then Open it.
func (d *Draft[W]) Write(pieces [][]byte) bool {
	n := 0
	for _, p := range pieces {
		n += len(p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || len(d.data)+n > maxDraft || int64(len(d.data)+n) > d.table.cfg.Client.MaxWhole() {
		return false
	}
	for _, p := range pieces {
		d.data = append(d.data, p...)
	}
	return true
}

// Open makes the file, with what was written so far, and returns it open for
// write. LeaseLost if it cannot be made any more: another made a file of that
// name, the directory was removed, or the namenode has forgotten this session.
// Other errors are those of Create; but while no namenode answers, or none takes
// anything on, it is tried again until the context ends.
func (d *Draft[W]) Open(ctx context.Context) (none W, err error) {
	data, err := d.finish()
	if err != nil {
		return none, err
	}
	defer d.table.forget(d)
	w, err := d.open(ctx)
	if err != nil {
		return none, err
	}
	if _, err := w.WriteContext(ctx, data); err != nil {
		_ = w.Abort()
		return none, err
	}
	return w, nil
}

// Close makes the file whole and closed: mtime is its modification time in Unix
// milliseconds, 0 for that of the call. When the context ends that is still tried
// for three seconds. Errors are LeaseLost, as of Open, and those of Create.
func (d *Draft[W]) Close(ctx context.Context, mtime int64) error {
	data, err := d.finish()
	if err != nil {
		return err
	}
	defer d.table.forget(d)
	ctx, over := d.table.cfg.Client.Linger(ctx)
	defer over()
	asBlock, err := d.create(ctx, d.inode, data, mtime)
	if numberGone(err) { // better with another number than not at all
		if asBlock, err = d.create(ctx, 0, data, mtime); asBlock {
			return d.lost(err)
		}
	}
	if !asBlock {
		return err
	}
	w, err := d.open(ctx)
	if err != nil {
		return err
	}
	if mtime != 0 {
		w.SetModTime(time.UnixMilli(mtime))
	}
	if _, err := w.WriteContext(ctx, data); err != nil {
		_ = w.Abort()
		return err
	}
	return w.CloseContext(ctx)
}

// finish ends the draft for whoever is first.
func (d *Draft[W]) finish() ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, fserror.New(fserror.Closed, "create", d.Path(), "the draft has ended already")
	}
	d.ended = true
	return d.data, nil
}

// create makes the file whole, under a number that is set aside, or any (0).
func (d *Draft[W]) create(ctx context.Context, inode uint64, data []byte, mtime int64) (asBlock bool, err error) {
	req := d.request(inode)
	defer d.table.cfg.IDs.Retire(req.Call)
	req.Close, req.MtimeUnixMs = true, mtime
	req.Data, req.DataCrc32C = data, blockstore.CRC(data)
	asBlock, err = d.table.cfg.Client.Create(ctx, d.Path(), req)
	return asBlock, d.outcome(err)
}

// open makes the file, open for write. Its number must not change: who has it open
// knows it by that.
func (d *Draft[W]) open(ctx context.Context) (W, error) {
	req := d.request(d.inode)
	defer d.table.cfg.IDs.Retire(req.Call)
	w, err := d.table.cfg.Client.Open(ctx, d.Path(), req)
	if err = d.outcome(err); numberGone(err) {
		err = d.lost(err)
	}
	return w, err
}

// request is a Create by the directory's number, since that may have been renamed.
func (d *Draft[W]) request(inode uint64) *pb.CreateRequest {
	cfg := &d.table.cfg
	return &pb.CreateRequest{
		Call: cfg.IDs.Next(), Caller: d.file.Caller, At: &pb.Ref{Base: d.Dir(), Path: d.file.Name},
		As: inode, Mode: d.file.Mode, HasMode: d.file.HasMode, Owner: d.file.Owner, Umask: proto.Uint32(cfg.Umask),
		Cache: true,
	}
}

// outcome is what the error of a Create means to the draft.
func (d *Draft[W]) outcome(err error) error {
	if err == nil {
		return nil
	}
	switch fserror.KindOf(err) {
	case fserror.Exists, fserror.NotFound, fserror.NotDirectory:
		return d.lost(err)
	}
	if numberGone(err) {
		d.table.ForgetNumbers()
	}
	return err
}

func (d *Draft[W]) lost(err error) error {
	return fserror.New(fserror.LeaseLost, "create", d.Path(), "the file was begun here and cannot be made any more: %s", cause(err))
}

func cause(err error) string {
	var e *fserror.Error
	if errors.As(err, &e) && e.Message != "" {
		return e.Message
	}
	return err.Error()
}

// noNumber is the reason of a refusal of an inode number: the session was away for
// so long that the namenode has forgotten what was set aside for it.
const noNumber = "no number"

func numberGone(err error) bool { return fserror.Has(err, fserror.InvalidArgument, noNumber) }
