package zkmodel

import (
	"encoding/binary"
	"errors"

	"github.com/go-zookeeper/zk"
)

// maxFrame is jute.maxbuffer's default: a longer request costs its connection.
const maxFrame = 1<<20 - 1

var errShort = errors.New("a request ends early")

// reader takes ZooKeeper's encoding apart. After the first failure all it returns
// is empty, and err says why.
type reader struct {
	buf []byte
	err error
}

func (r *reader) take(n int) []byte {
	if r.err != nil || n < 0 || n > len(r.buf) {
		r.err = errShort
		return nil
	}
	p := r.buf[:n]
	r.buf = r.buf[n:]
	return p
}

func (r *reader) int32() int32 {
	if p := r.take(4); p != nil {
		return int32(binary.BigEndian.Uint32(p))
	}
	return 0
}

func (r *reader) int64() int64 {
	if p := r.take(8); p != nil {
		return int64(binary.BigEndian.Uint64(p))
	}
	return 0
}

func (r *reader) bool() bool {
	p := r.take(1)
	return p != nil && p[0] != 0
}

// bytes returns a copy; a length of -1 is nil.
func (r *reader) bytes() []byte {
	n := r.int32()
	if n == -1 || r.err != nil {
		return nil
	}
	return append([]byte{}, r.take(int(n))...)
}

func (r *reader) string() string { return string(r.bytes()) }

func (r *reader) strings() (all []string) {
	for n := r.int32(); n > 0 && r.err == nil; n-- {
		all = append(all, r.string())
	}
	return all
}

func (r *reader) acl() (all []zk.ACL) {
	for n := r.int32(); n > 0 && r.err == nil; n-- {
		all = append(all, zk.ACL{Perms: r.int32(), Scheme: r.string(), ID: r.string()})
	}
	return all
}

// writer is the reverse of reader.
type writer struct{ buf []byte }

func (w *writer) int32(v int32) { w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(v)) }
func (w *writer) int64(v int64) { w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(v)) }

func (w *writer) bool(v bool) {
	b := byte(0)
	if v {
		b = 1
	}
	w.buf = append(w.buf, b)
}

func (w *writer) bytes(p []byte) {
	if p == nil {
		w.int32(-1)
		return
	}
	w.int32(int32(len(p)))
	w.buf = append(w.buf, p...)
}

func (w *writer) string(s string) {
	w.int32(int32(len(s)))
	w.buf = append(w.buf, s...)
}

func (w *writer) strings(all []string) {
	w.int32(int32(len(all)))
	for _, s := range all {
		w.string(s)
	}
}

func (w *writer) acl(all []zk.ACL) {
	w.int32(int32(len(all)))
	for _, a := range all {
		w.int32(a.Perms)
		w.string(a.Scheme)
		w.string(a.ID)
	}
}

func (w *writer) stat(s zk.Stat) {
	for _, v := range []int64{s.Czxid, s.Mzxid, s.Ctime, s.Mtime} {
		w.int64(v)
	}
	for _, v := range []int32{s.Version, s.Cversion, s.Aversion} {
		w.int32(v)
	}
	w.int64(s.EphemeralOwner)
	w.int32(s.DataLength)
	w.int32(s.NumChildren)
	w.int64(s.Pzxid)
}

// frame is a reply: its header, and the body unless it is an error.
func frame(xid int32, zxid int64, code zk.ErrCode, body func(*writer)) []byte {
	w := writer{buf: make([]byte, 4, 64)}
	w.int32(xid)
	w.int64(zxid)
	w.int32(int32(code))
	if code == ok && body != nil {
		body(&w)
	}
	return w.sealed()
}

// sealed fills in the length, for which four bytes were left in front.
func (w *writer) sealed() []byte {
	binary.BigEndian.PutUint32(w.buf, uint32(len(w.buf)-4)) //nolint:gosec // a reply is far below 4 GiB
	return w.buf
}
