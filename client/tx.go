package client

import (
	"context"
	"io/fs"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// MaxTxOps is how many operations a Tx has at most.
const MaxTxOps = 64

// Tx is a small transaction: compares that must hold (the If methods), and operations, all
// of which are then done at once or not at all. It has at most 64 compares, MaxTxOps
// operations, 64 attributes of what it makes, and Info.MaxWholeFile bytes of contents, names and
// attributes.
//
//	_, err := client.NewTx(fs).
//		IfLease(lease).                        // I am alive
//		IfXattr("/job", "user.state", "ready"). // nobody was faster
//		SetXattr("/job", "user.state", "running").
//		Create("/job.log", []byte("started\n")).
//		Commit(ctx)
//
// Each operation has the rules, permissions and errors of the single call. No operation may
// touch a path that another one touches, or one below what another makes, moves or removes. A Tx is not safe for
// concurrent use.
type Tx struct {
	fs   *FS
	name string // of the operation, in errors
	req  *pb.TransactRequest
	err  error // the first thing that was wrong
}

// NewTx returns an empty transaction.
func NewTx(fs *FS) *Tx {
	return &Tx{fs: fs, name: "transact", req: &pb.TransactRequest{Caller: fs.caller}}
}

// Commit does all operations if all compares hold. CompareFailed says which compare does
// not, and what was found. After an error nothing was done, but after Unknown that is not
// known. The error names its compare or operation by number, from 1 on. txid is the number
// of the change, 0 if there was nothing to change. A Tx can be committed again.
func (t *Tx) Commit(ctx context.Context) (txid uint64, err error) {
	if t.err != nil {
		return 0, t.err
	}
	t.req.Call = t.fs.ids.Next()
	resp, err := t.fs.change(ctx, t.name, "", pb.Namenode_Transact_FullMethodName, t.req.GetCall(), t.req)
	return resp.GetTxid(), err
}

// IfExists holds if something exists at path, be it a symbolic link that leads nowhere.
func (t *Tx) IfExists(path string) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Exists{Exists: true}})
}

// IfMissing holds if nothing exists at path, not even a symbolic link.
func (t *Tx) IfMissing(path string) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Exists{}})
}

// IfInode holds if path leads to this inode (FileInfo.Inode). No other file ever has that
// number, and Write makes a new inode, so the file has not been replaced.
func (t *Tx) IfInode(path string, inode uint64) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Inode{Inode: inode}})
}

// IfEpoch holds if a file is open for write under this epoch: its holder's Writer.Token or
// Lock.Token.
func (t *Tx) IfEpoch(path string, epoch uint64) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Epoch{Epoch: epoch}})
}

// IfLength holds if path is a file of this many bytes.
func (t *Tx) IfLength(path string, length int64) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Length{Length: length}})
}

// IfXattr holds if a file or directory has this extended attribute.
func (t *Tx) IfXattr(path, name, value string) *Tx {
	return t.compare(path, &pb.TxCompare{What: &pb.TxCompare_Xattr{Xattr: t.xattr(path, name, []byte(value))}})
}

// IfLease holds if a granted lease has not ended.
func (t *Tx) IfLease(id LeaseID) *Tx {
	t.req.Compares = append(t.req.Compares, &pb.TxCompare{What: &pb.TxCompare_Lease{Lease: uint64(id)}})
	return t
}

func (t *Tx) compare(path string, c *pb.TxCompare) *Tx {
	c.Path = t.clean(path)
	t.req.Compares = append(t.req.Compares, c)
	return t
}

// Create makes a file with all of its content. It takes the options WithMode, WithParents,
// WithLease and WithXattrs.
func (t *Tx) Create(path string, data []byte, opts ...OpenOption) *Tx {
	return t.file(path, data, opts, func(f *pb.TxFile, o *pb.TxOp) { o.Op = &pb.TxOp_Create{Create: f} })
}

// Write is Create, but it replaces a file that exists, unless another holds it open for
// write (Held). The new file has a new inode, and takes over only the mode of the old one.
func (t *Tx) Write(path string, data []byte, opts ...OpenOption) *Tx {
	return t.file(path, data, opts, func(f *pb.TxFile, o *pb.TxOp) { o.Op = &pb.TxOp_Write{Write: f} })
}

func (t *Tx) file(path string, data []byte, opts []OpenOption, set func(*pb.TxFile, *pb.TxOp)) *Tx {
	o := gather(opts)
	umask := filemode.Unix(*t.fs.cfg.Umask)
	f := &pb.TxFile{
		Data: data, DataCrc32C: blockstore.CRC(data), Mode: filemode.Unix(o.mode), HasMode: o.hasMode,
		Parents: o.parents, Lease: uint64(o.lease), Umask: &umask,
	}
	op := new(pb.TxOp)
	for _, x := range o.xattrs {
		op.Xattrs = append(op.Xattrs, t.xattr(path, x.Name, x.Value))
	}
	set(f, op)
	return t.op(path, op)
}

// Mkdir makes a directory. With parents, missing directories above it are made, too, and
// it is no error if the directory exists.
func (t *Tx) Mkdir(path string, mode fs.FileMode, parents bool) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_Mkdir{Mkdir: &pb.TxDir{Mode: filemode.Unix(mode), HasMode: true, Parents: parents}}})
}

// Rename is FS.Rename.
func (t *Tx) Rename(from, to string, overwrite bool) *Tx {
	return t.op(from, &pb.TxOp{Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: t.clean(to), Overwrite: overwrite}}})
}

// Remove is FS.Remove.
func (t *Tx) Remove(path string) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_Delete{Delete: new(pb.TxDelete)}})
}

// Attach is Leases.Attach, of something that exists before the transaction.
func (t *Tx) Attach(id LeaseID, path string) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_Attach{Attach: uint64(id)}})
}

// Detach is Leases.Detach, of something that exists before the transaction.
func (t *Tx) Detach(path string) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_Detach{Detach: new(pb.TxDetach)}})
}

// SetXattr is Xattrs.Set, in any mode.
func (t *Tx) SetXattr(path, name, value string) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_SetXattr{SetXattr: t.xattr(path, name, []byte(value))}})
}

// RemoveXattr is Xattrs.Remove.
func (t *Tx) RemoveXattr(path, name string) *Tx {
	return t.op(path, &pb.TxOp{Op: &pb.TxOp_RemoveXattr{RemoveXattr: t.xattr(path, name, nil).GetName()}})
}

func (t *Tx) op(path string, o *pb.TxOp) *Tx {
	o.Path = t.clean(path)
	t.req.Ops = append(t.req.Ops, o)
	return t
}

func (t *Tx) clean(path string) string {
	p, err := clean(t.name, path)
	t.fail(err)
	return p
}

func (t *Tx) xattr(path, name string, value []byte) *pb.TxXattr {
	if !utf8.ValidString(name) {
		t.fail(fserror.New(fserror.InvalidArgument, t.name, path, "the attribute's name %q is not valid UTF-8; names here are", name))
	}
	return &pb.TxXattr{Name: name, Value: value}
}

func (t *Tx) fail(err error) {
	if t.err == nil {
		t.err = err
	}
}
