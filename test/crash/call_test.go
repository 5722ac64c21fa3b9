package crash

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// call is one request of a day. It can be sent to several machines, always as
// the same request under the same call id.
type call struct {
	name string
	send func(*machine) (any, error)
	// effect is what the call does to the model; out is its answer, nil if that
	// is not known.
	effect func(m *model, out any)
	// seen is set for a reader: what it was shown must be in every later state.
	seen func(m *model, out any) bool
	// answers says that the answer is the same however often it is asked.
	answers bool
}

// client is one client process of a day.
type client struct {
	r       *run
	name    string
	session []byte
	seq     uint64
}

func crc(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func (c *client) id() *pb.CallId {
	c.seq++
	return &pb.CallId{Session: c.session, Seq: c.seq, Acked: c.seq - 1}
}

func (c *client) who() *pb.Caller {
	return &pb.Caller{User: "root", Client: c.name, Session: c.session, Host: "h", Pid: 7}
}

// writer is the identity under which the file is open now.
func (c *client) writer(id string) (*pb.WriterId, *node) {
	n := c.r.want.byID(id)
	if n == nil || n.open == nil || n.open.id == nil {
		c.r.failf("the script writes to %s, which is not open", id)
	}
	return n.open.id, n
}

func nothing(*model, any) {}

// api is the sending of one request of the Namenode service.
func api[Q, A any](method func(pb.NamenodeClient, context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q) func(*machine) (any, error) {
	return func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		a, err := method(m.api, ctx, q)
		return a, wire.FromStatus(err)
	}
}

// admin is the same of the Admin service.
func admin[Q, A any](method func(pb.AdminClient, context.Context, *Q, ...grpc.CallOption) (*A, error), q *Q) func(*machine) (any, error) {
	return func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		a, err := method(m.admin, ctx, q)
		return a, wire.FromStatus(err)
	}
}

func (c *client) mkdir(path string) *call {
	q := &pb.MkdirRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Parents: true}
	return &call{name: "mkdir " + path, answers: true, send: api(pb.NamenodeClient.Mkdir, q), effect: func(m *model, _ any) { m.mkdirAll(path) }}
}

// create makes a file; with whole it is closed in the same call.
func (c *client) create(id, path, data string, whole bool, alter ...func(*pb.CreateRequest)) *call {
	q := &pb.CreateRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Parents: true, Data: []byte(data), Close: whole, DataCrc32C: crc([]byte(data))}
	for _, a := range alter {
		a(q)
	}
	mode := uint32(0o644)
	if q.HasMode {
		mode = q.Mode
	}
	return &call{name: "create " + path, answers: true, send: api(pb.NamenodeClient.Create, q), effect: func(m *model, out any) {
		m.mkdirAll(parentOf(path))
		m.fence(m.nodes[path])
		n := &node{id: id, typ: file, mode: mode, data: data, mtime: q.MtimeUnixMs, lease: q.Lease}
		m.nodes[path] = n
		if !whole {
			n.open = &writer{session: string(pb.SessionName(c.session))}
		}
		if a, ok := out.(*pb.OpenResponse); ok {
			n.inode = a.GetAttr().GetInode()
			if !whole {
				n.open.id = a.GetWriter()
			}
		}
	}}
}

func steal(q *pb.CreateRequest)     { q.Overwrite, q.Steal = true, true }
func overwrite(q *pb.CreateRequest) { q.Overwrite = true }

// appendTo opens a file at its end. With wait the machine's clock moves on first,
// so that another's lease is past its soft limit.
func (c *client) appendTo(id, path string, wait time.Duration) *call {
	q := &pb.AppendRequest{Call: c.id(), Caller: c.who(), At: pb.Follow(path)}
	send := api(pb.NamenodeClient.Append, q)
	return &call{name: "append " + path, send: func(m *machine) (any, error) { m.clock.Advance(wait); return send(m) }, effect: func(m *model, out any) {
		n := m.nodes[path]
		m.fence(n)
		n.id, n.mtime, n.open = id, 0, &writer{session: string(pb.SessionName(c.session))}
		if a, ok := out.(*pb.OpenResponse); ok {
			n.open.id, n.cut = a.GetWriter(), a.GetBlocksLength()
		}
	}}
}

func (c *client) flush(id, data string) *call {
	w, n := c.writer(id)
	q := &pb.AppendTailRequest{Writer: w, Offset: int64(len(n.data)), Data: []byte(data), Crc32C: crc([]byte(data))}
	return &call{name: "flush " + id, send: api(pb.NamenodeClient.AppendTail, q), effect: func(m *model, _ any) {
		n := m.byID(id)
		n.data, n.mtime = n.data+data, 0
	}}
}

func (c *client) close(id, data string) *call {
	w, n := c.writer(id)
	q := &pb.CloseRequest{Call: c.id(), Writer: w, Offset: int64(len(n.data)), Data: []byte(data), Crc32C: crc([]byte(data)), Length: int64(len(n.data) + len(data))}
	return &call{name: "close " + id, answers: true, send: api(pb.NamenodeClient.Close, q), effect: func(m *model, _ any) {
		n := m.byID(id)
		n.data += data
		n.mtime, n.cut = 0, 0
		m.fence(n)
	}}
}

// put writes a block that begins with the file's tail: allocate, PUT, commit.
func (c *client) put(id, data string) {
	w, n := c.writer(id)
	tail := n.data[n.cut:]
	object, sum := blockstore.Seal([]byte(tail + data))
	target := c.target(w, object, sum)
	c.r.do(c.upload(target, object))
	c.r.do(c.commit(id, target, object, sum, data))
}

// target allocates a block.
func (c *client) target(w *pb.WriterId, object []byte, sum uint32) *pb.BlockTarget {
	q := &pb.AllocateBlockRequest{Writer: w, Blocks: []*pb.BlockIntent{{StoredLength: int64(len(object)), Crc32C: sum}}}
	var target *pb.BlockTarget
	c.r.do(&call{name: "allocate", send: api(pb.NamenodeClient.AllocateBlock, q), effect: func(_ *model, out any) {
		if a, ok := out.(*pb.AllocateBlockResponse); ok {
			target = a.GetTargets()[0]
		}
	}})
	return target
}

// upload is the PUT. A repeated one may be told that it is there.
func (c *client) upload(target *pb.BlockTarget, object []byte) *call {
	return &call{name: "put block", send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		text, status, err := m.fetch(ctx, http.MethodPut, target.GetUrl(), target.GetHeaders(), object)
		if err != nil {
			return nil, err
		}
		if status != http.StatusOK && status != http.StatusPreconditionFailed {
			return nil, fmt.Errorf("PUT: %d %s", status, text)
		}
		return nil, nil
	}, effect: nothing}
}

func (c *client) commit(id string, target *pb.BlockTarget, object []byte, sum uint32, data string) *call {
	w, n := c.writer(id)
	tail := n.data[n.cut:]
	q := &pb.CommitRequest{
		Writer: w, Offset: n.cut, TailCovered: int64(len(tail)), TailCrc32C: crc([]byte(tail)),
		Block: &pb.Block{Term: target.GetTerm(), Seq: target.GetSeq(), StoredLength: int64(len(object)), UsedLength: int64(len(tail) + len(data)), Crc32C: sum},
	}
	return &call{name: "commit " + id, send: api(pb.NamenodeClient.Commit, q), effect: func(m *model, _ any) {
		n := m.byID(id)
		n.data += data
		n.cut, n.mtime = int64(len(n.data)), 0
	}}
}

func (c *client) recover(path string) *call {
	q := &pb.RecoverRequest{Call: c.id(), Caller: c.who(), At: pb.Follow(path), Force: true}
	return &call{name: "recover " + path, answers: true, send: api(pb.NamenodeClient.Recover, q), effect: func(m *model, _ any) { m.fence(m.nodes[path]); m.nodes[path].mtime = 0 }}
}

func (c *client) closeAbandoned(path string) *call {
	q := &pb.CloseAbandonedRequest{Call: c.id(), Caller: c.who(), At: pb.Follow(path)}
	return &call{name: "close abandoned " + path, answers: true, send: api(pb.NamenodeClient.CloseAbandoned, q), effect: func(m *model, _ any) { m.fence(m.nodes[path]); m.nodes[path].mtime = 0 }}
}

func (c *client) rename(from, to string) *call {
	q := &pb.RenameRequest{Call: c.id(), Caller: c.who(), From: pb.At(from), To: pb.At(to), Overwrite: true}
	return &call{name: "rename " + from + " " + to, answers: true, send: api(pb.NamenodeClient.Rename, q), effect: func(m *model, _ any) { m.rename(from, to) }}
}

func (c *client) delete(path string) *call {
	q := &pb.DeleteRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Recursive: true}
	return &call{name: "delete " + path, answers: true, send: api(pb.NamenodeClient.Delete, q), effect: func(m *model, _ any) { m.remove(path) }}
}

// transact makes one file, renames another over a third and deletes a fourth, at once.
func (c *client) transact(id, path, data, from, to, gone string) *call {
	q := &pb.TransactRequest{Call: c.id(), Caller: c.who(), Compares: []*pb.TxCompare{{Path: from, What: &pb.TxCompare_Exists{Exists: true}}}, Ops: []*pb.TxOp{
		{Path: path, Op: &pb.TxOp_Create{Create: &pb.TxFile{Data: []byte(data), DataCrc32C: crc([]byte(data)), Parents: true}}},
		{Path: from, Op: &pb.TxOp_Rename{Rename: &pb.TxRename{To: to, Overwrite: true}}},
		{Path: gone, Op: &pb.TxOp_Delete{Delete: &pb.TxDelete{}}},
	}}
	return &call{name: "transact " + path, answers: true, send: api(pb.NamenodeClient.Transact, q), effect: func(m *model, _ any) {
		m.mkdirAll(parentOf(path))
		m.nodes[path] = &node{id: id, typ: file, mode: 0o644, data: data}
		m.rename(from, to)
		m.remove(gone)
	}}
}

func (c *client) symlink(target, path string) *call {
	q := &pb.SymlinkRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), Target: target, Parents: true}
	return &call{name: "symlink " + path, answers: true, send: api(pb.NamenodeClient.Symlink, q), effect: func(m *model, _ any) {
		m.mkdirAll(parentOf(path))
		m.nodes[path] = &node{typ: symlink, target: target}
	}}
}

func (c *client) truncate(path string, length int) *call {
	q := &pb.TruncateRequest{Call: c.id(), Caller: c.who(), At: pb.Follow(path), Length: int64(length)}
	return &call{name: "truncate " + path, answers: true, send: api(pb.NamenodeClient.Truncate, q), effect: func(m *model, _ any) { m.nodes[path].data, m.nodes[path].mtime = m.nodes[path].data[:length], 0 }}
}

func (c *client) setattr(path string, mode uint32, mtime int64) *call {
	q := &pb.SetAttrRequest{Call: c.id(), Caller: c.who(), At: pb.At(path), SetMode: true, Mode: mode, SetMtime: true, MtimeUnixMs: mtime}
	return &call{name: "setattr " + path, answers: true, send: api(pb.NamenodeClient.SetAttr, q), effect: func(m *model, _ any) { m.nodes[path].mode, m.nodes[path].mtime = mode, mtime }}
}

func (c *client) concat(target string, sources ...string) *call {
	q := &pb.ConcatRequest{Call: c.id(), Caller: c.who(), Target: pb.Follow(target)}
	for _, s := range sources {
		q.Sources = append(q.Sources, pb.At(s))
	}
	return &call{name: "concat " + target, answers: true, send: api(pb.NamenodeClient.Concat, q), effect: func(m *model, _ any) {
		n := m.nodes[target]
		n.mtime = 0
		for _, s := range sources {
			n.data += m.nodes[s].data
			m.remove(s)
		}
	}}
}

func (c *client) safeMode(on bool) *call {
	q := &pb.SafeModeRequest{Caller: c.who(), Action: pb.SafeModeRequest_ACTION_LEAVE}
	if on {
		q.Action = pb.SafeModeRequest_ACTION_ENTER
	}
	return &call{name: "safe mode", send: admin(pb.AdminClient.SafeMode, q), effect: func(m *model, _ any) { m.safe = on }}
}

func (c *client) checkpoint() *call {
	q := &pb.CheckpointRequest{Caller: c.who()}
	return &call{name: "checkpoint", send: admin(pb.AdminClient.Checkpoint, q), effect: nothing}
}

// collect runs the collector when all URLs handed out so far are over. It is sent
// alone: see run.do.
func (c *client) collect() *call {
	return &call{name: "collect", send: func(m *machine) (any, error) {
		m.endURLs()
		return nil, wire.FromStatus(m.collect())
	}, effect: nothing}
}

// collectNow runs the collector while URLs are good: it must touch nothing that
// may still become part of a file.
func (c *client) collectNow() *call {
	return &call{name: "collect now", send: func(m *machine) (any, error) { return nil, wire.FromStatus(m.collect()) }, effect: nothing}
}

// hold takes the URLs of a file, and returns a call that reads its blocks by
// them: it must work for as long as they are good, whatever became of the file,
// but when room was short.
func (c *client) hold(path string) *call {
	var blocks []*pb.Block
	c.r.do(&call{name: "hold " + path, send: api(pb.NamenodeClient.GetFile, &pb.GetFileRequest{Caller: c.who(), At: pb.Follow(path)}), effect: func(_ *model, out any) {
		if f, ok := out.(*pb.GetFileResponse); ok {
			blocks = f.GetBlocks()
		}
	}})
	return &call{name: "read what was " + path, send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		for _, b := range blocks {
			object, status, err := m.fetch(ctx, http.MethodGet, b.GetUrl(), b.GetHeaders(), nil)
			if err == nil && status != http.StatusOK && (status != http.StatusNotFound || !c.r.wasFull()) {
				err = fmt.Errorf("%d %s", status, object)
			}
			if err != nil {
				return nil, err
			}
		}
		return nil, nil
	}, effect: nothing}
}

// look reads an open file: what it shows must stay.
func (c *client) look(id string) *call {
	_, n := c.writer(id)
	return &call{name: "look at " + id, send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		text, err := m.content(ctx, n.inode)
		return text, err
	}, effect: nothing, seen: func(m *model, out any) bool {
		n := m.byID(id)
		return n != nil && strings.HasPrefix(n.data, out.(string))
	}}
}

// find looks a path up: if it was there or not there, so it must stay, unless
// the answer is that of the state before.
func (c *client) find(path string) *call {
	q := &pb.StatRequest{Caller: c.who(), At: pb.At(path)}
	return &call{name: "find " + path, send: func(m *machine) (any, error) {
		ctx, cancel := background()
		defer cancel()
		_, err := m.api.Stat(ctx, q)
		switch err = wire.FromStatus(err); {
		case err == nil:
			return true, nil
		case errors.Is(err, fserror.NotFound):
			return false, nil
		}
		return nil, err
	}, effect: nothing, seen: func(m *model, out any) bool { return !out.(bool) || m.nodes[path] != nil }}
}
