package conns

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Gone tells whether the other side has ended the connection, even if something that it sent before has
// not been read yet: a process that was stopped for a while finds requests whose clients gave up
// long ago. False where that cannot be told. It does not wait.
func (c *Conn) Gone() bool {
	sc, ok := c.Conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	gone := true // if it is closed here
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} //nolint:gosec // a descriptor
		n, err := unix.Poll(fds, 0)
		for errors.Is(err, unix.EINTR) {
			n, err = unix.Poll(fds, 0)
		}
		gone = err == nil && n > 0
	})
	return gone
}
