package crashfs

import (
	"errors"
	"io"
	"io/fs"
	"slices"
	"syscall"
)

// file is an open file. Its position serves Read and Write.
type file struct {
	fs     *FS
	node   *node
	name   string
	pos    int64
	write  bool
	closed bool
}

func (h *file) Name() string { return h.name }

// usable is asked with the lock held.
func (h *file) usable(op string) error {
	switch {
	case h.fs.crashed:
		return pathErr(op, h.name, ErrCrashed)
	case h.closed:
		return pathErr(op, h.name, fs.ErrClosed)
	}
	return nil
}

func (h *file) writable(op string) error {
	if err := h.usable(op); err != nil {
		return err
	}
	if !h.write {
		return pathErr(op, h.name, syscall.EBADF)
	}
	if h.fs.readOnly {
		return pathErr(op, h.name, syscall.EROFS)
	}
	return nil
}

func (h *file) Read(p []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	n, err := h.readAt(p, h.pos)
	h.pos += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

func (h *file) ReadAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.readAt(p, off)
}

func (h *file) readAt(p []byte, off int64) (int, error) {
	if err := h.usable("read"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("read", h.name, syscall.EINVAL)
	}
	if off >= int64(len(h.node.live)) {
		if len(p) == 0 {
			return 0, nil
		}
		return 0, io.EOF
	}
	n := copy(p, h.node.live[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Write is one point. On a full disk it writes what fits.
func (h *file) Write(p []byte) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	n, err := h.writeAt(p, h.pos)
	h.pos += int64(n)
	return n, err
}

// WriteAt is one point, as Write.
func (h *file) WriteAt(p []byte, off int64) (int, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	return h.writeAt(p, off)
}

func (h *file) writeAt(p []byte, off int64) (int, error) {
	f := h.fs
	if err := h.writable("write"); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, pathErr("write", h.name, syscall.EINVAL)
	}
	crash := f.point()
	if crash == nil {
		if err := f.injected(opWrite, h.name); err != nil {
			return 0, pathErr("write", h.name, err)
		}
	}
	fits := p
	grow := off + int64(len(p)) - int64(len(h.node.live))
	if room := max(0, f.capacity-f.used); grow > room {
		fits = p[:max(0, int64(len(p))-(grow-room))]
	}
	if len(fits) > 0 {
		op := dataOp{off, slices.Clone(fits)}
		h.node.ops = append(h.node.ops, op)
		before := len(h.node.live)
		h.node.live = op.applyTo(h.node.live)
		f.used += int64(len(h.node.live) - before)
	}
	switch {
	case crash != nil:
		return 0, pathErr("write", h.name, crash)
	case len(fits) < len(p):
		return len(fits), pathErr("write", h.name, syscall.ENOSPC)
	}
	return len(p), nil
}

// applyTo returns the content after the operation.
func (op dataOp) applyTo(b []byte) []byte {
	end := op.off + int64(len(op.data))
	if op.data == nil && int64(len(b)) > end {
		return b[:end]
	}
	if grow := end - int64(len(b)); grow > 0 {
		n := len(b)
		b = slices.Grow(b, int(grow))[:end]
		clear(b[n:])
	}
	copy(b[op.off:], op.data)
	return b
}

// Sync is one point. If it fails, what was written since the last one will
// never be on the disk, and no later Sync says so.
func (h *file) Sync() error {
	f := h.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := h.usable("sync"); err != nil {
		return err
	}
	if err := f.point(); err != nil {
		return pathErr("sync", h.name, err)
	}
	n := h.node
	if err := f.injected(opSync, h.name); err != nil {
		n.ops = nil
		return pathErr("sync", h.name, err)
	}
	for _, op := range n.ops {
		n.disk = op.applyTo(n.disk)
	}
	n.ops = nil
	return nil
}

// Truncate is one point; durable after Sync.
func (h *file) Truncate(size int64) error {
	f := h.fs
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := h.writable("truncate"); err != nil {
		return err
	}
	if size < 0 {
		return pathErr("truncate", h.name, syscall.EINVAL)
	}
	crash := f.point()
	if crash == nil {
		if err := f.injected(opWrite, h.name); err != nil {
			return pathErr("truncate", h.name, err)
		}
	}
	f.truncate(h.node, size)
	if crash != nil {
		return pathErr("truncate", h.name, crash)
	}
	return nil
}

func (f *FS) truncate(n *node, size int64) {
	op := dataOp{off: size}
	n.ops = append(n.ops, op)
	before := len(n.live)
	n.live = op.applyTo(n.live)
	f.used += int64(len(n.live) - before)
}

func (h *file) Size() (int64, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.usable("stat"); err != nil {
		return 0, err
	}
	return int64(len(h.node.live)), nil
}

func (h *file) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if h.closed {
		return pathErr("close", h.name, fs.ErrClosed)
	}
	h.closed = true
	h.node.refs--
	h.fs.handles--
	h.fs.reclaim(h.node)
	return nil
}
