package audit

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
)

// output is what lines are written to. All but interrupt is of one goroutine.
type output struct {
	name string
	most int64
	keep int

	info   fs.FileInfo // of what was opened last
	size   int64
	looked time.Time // when it was looked whether the name is still that of the file
	torn   bool      // what was written last is no whole line
	skip   bool      // and the file was closed since: its rest has no beginning any more

	mu   sync.Mutex
	file *os.File // nil: it is to be opened
}

// noReader reports whether a FIFO could not be opened because nobody reads it.
func noReader(err error) bool { return errors.Is(err, syscall.ENXIO) }

// open opens the file. A FIFO without a reader is an error, and waits for none.
func (o *output) open() error {
	if o.name == Stderr {
		o.set(os.Stderr)
		return nil
	}
	f, err := os.OpenFile(o.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, 0o600) //nolint:gosec // who configures it names the file
	if err != nil {
		return o.failed("open", err)
	}
	info, err := f.Stat()
	if err == nil && info.Mode().IsRegular() {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) { //nolint:gosec // a descriptor
			err = errors.New("another process writes it: give each namenode a file of its own")
		}
	}
	if err != nil {
		_ = f.Close() // nothing was written
		return o.failed("open", err)
	}
	o.info, o.size, o.looked = info, info.Size(), time.Now()
	if endsTorn(o.name, info) {
		if _, err := f.WriteString("\n"); err != nil {
			_ = f.Close() // as above
			return o.failed("write", err)
		}
	}
	o.set(f)
	return nil
}

// endsTorn reports whether a file ends within a line, as a write that failed may have left it.
func endsTorn(name string, info fs.FileInfo) bool {
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(name) //nolint:gosec // as above
	if err != nil {
		return true // an empty line does no harm
	}
	defer func() { _ = f.Close() }() // nothing is written
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err != nil || last[0] != '\n'
}

func (o *output) failed(what string, err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) { // the path is said already
		err = pe.Err
	}
	return (&fserror.Error{Kind: fserror.InvalidArgument, Op: what + " the audit log", Path: o.name, Err: err}).Because(fserror.ReasonAudit)
}

func (o *output) set(f *os.File) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.file = f
}

// write writes whole lines, or what an earlier call has left of them. It returns what is
// still to be written, and how many lines were skipped, since their beginning went elsewhere.
func (o *output) write(p []byte) (rest []byte, skipped uint64, err error) {
	if err := o.ready(int64(len(p))); err != nil {
		return p, 0, err
	}
	if o.skip {
		p, skipped, o.skip = p[bytes.IndexByte(p, '\n')+1:], 1, false
	}
	if len(p) == 0 {
		return nil, skipped, nil
	}
	n, err := o.file.Write(p)
	o.size += int64(n)
	if n > 0 {
		o.torn = p[n-1] != '\n'
	}
	if err != nil {
		if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) { // else the file is as good as before
			o.close()
		}
		return p[n:], skipped, o.failed("write", err)
	}
	return nil, skipped, nil
}

// ready opens the file if it is not, or the name is another file's by now, and begins a new
// one if this one has no room for n bytes more.
func (o *output) ready(n int64) error {
	switch {
	case o.file == nil:
		return o.open()
	case o.torn || o.info == nil || !o.info.Mode().IsRegular():
		return nil
	}
	if time.Since(o.looked) > time.Second {
		o.looked = time.Now()
		if now, err := os.Stat(o.name); err != nil || !os.SameFile(now, o.info) {
			o.close()
			return o.open()
		}
	}
	if o.size == 0 || o.size+n <= o.most {
		return nil
	}
	older := func(i int) string { return o.name + "." + strconv.Itoa(i) }
	i := 1
	for ; i < o.keep; i++ { // up to the first number that is free, or else the oldest is replaced
		if _, err := os.Lstat(older(i)); errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	for ; i > 0 && o.keep > 0; i-- {
		from := o.name
		if i > 1 {
			from = older(i - 1)
		}
		if err := os.Rename(from, older(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return o.failed("begin another file of", err)
		}
	}
	o.close()
	return o.open()
}

// interrupt ends a write that is under way, if it is to a pipe. It may be called by any goroutine.
func (o *output) interrupt() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil && o.name != Stderr {
		_ = o.file.SetWriteDeadline(time.Now()) // a disk has none
	}
}

func (o *output) close() {
	f := o.file
	o.set(nil)
	o.skip, o.torn = o.skip || o.torn, false
	if f != nil && o.name != Stderr {
		_ = f.Close() // what it may tell was told by the write
	}
}
