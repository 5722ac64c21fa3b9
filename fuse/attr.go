package fuse

import (
	"io/fs"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
)

// blockSize is what stat(2) gives as the size for I/O.
const blockSize = 4096

// typeOf is the type of a file as in st_mode.
func typeOf(m fs.FileMode) uint32 {
	switch {
	case m.IsDir():
		return syscall.S_IFDIR
	case m&fs.ModeSymlink != 0:
		return syscall.S_IFLNK
	}
	return syscall.S_IFREG
}

// umaskShift is where answers put the umask of a process beside the mode of what it makes.
const umaskShift = 16

// umaskOf is the umask that came with a mode.
func umaskOf(bits uint32) fs.FileMode { return fs.FileMode(bits >> umaskShift & 0o777) }

// fill makes attributes for the kernel of those of the namespace. All times are
// the modification time.
func (m *Mounted) fill(out *fuse.Attr, i *client.FileInfo) {
	out.Ino = i.Inode
	out.Mode = typeOf(i.Mode()) | filemode.Unix(i.Mode())
	out.Nlink = 1
	out.Owner = fuse.Owner{Uid: m.ids.uid(i.User), Gid: m.ids.gid(i.Group)}
	setSize(out, i.Length)
	if i.IsDir() {
		setSize(out, blockSize)
	}
	out.Blksize = blockSize
	t := i.ModTime()
	out.SetTimes(&t, &t, &t)
}

func setSize(out *fuse.Attr, n int64) {
	out.Size = uint64(max(n, 0))
	out.Blocks = (out.Size + 511) / 512
}
