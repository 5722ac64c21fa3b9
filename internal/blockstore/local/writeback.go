package local

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/vfs"
)

// writeback starts to write a file to the disk while it is still coming in, so
// that the fdatasync at its end finds little left to do. It is a hint: errors
// are of no interest, since fdatasync reports what matters.
type writeback struct {
	conn       syscall.RawConn // nil: not a file of the machine
	done, full int64           // bytes started, bytes written
}

const writebackStep = 1 << 20 // bytes; measured best of 1, 2 and 4 MiB, 8 MiB objects: a third faster than without

func newWriteback(f vfs.File) writeback {
	if c, ok := f.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			return writeback{conn: raw}
		}
	}
	return writeback{}
}

// wrote notes n bytes more at the end of the file.
func (w *writeback) wrote(n int64) {
	w.full += n
	if w.conn == nil || w.full-w.done < writebackStep {
		return
	}
	_ = w.conn.Control(func(fd uintptr) {
		_ = unix.SyncFileRange(int(fd), w.done, w.full-w.done, unix.SYNC_FILE_RANGE_WRITE)
	})
	w.done = w.full
}
