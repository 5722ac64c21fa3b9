package history

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/leasefs/leasefs/internal/vfs"
)

// suffix is that of the files.
const suffix = ".history"

// filesKept is about how many files there are when they take all that they may.
const filesKept = 64

// files are those of a Log. What writes runs alone; find runs beside it.
type files struct {
	cfg *Config
	end point // up to which they tell; what is written next begins there
	out vfs.File

	mu  sync.Mutex
	all []file // the oldest first; the last one is written
}

// file is one of them.
type file struct {
	from point // without a reign
	size int64 // of what is whole
}

func (f *files) name(at uint64) string {
	return filepath.Join(f.cfg.Dir, fmt.Sprintf("%020d%s", at, suffix))
}

// open looks at what there is. Of all files but the last, only the header is read.
func (f *files) open() error {
	if err := f.cfg.FS.MkdirAll(f.cfg.Dir); err != nil {
		return err
	}
	names, err := f.cfg.FS.List(f.cfg.Dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		digits, ours := strings.CutSuffix(name, suffix)
		from, err := strconv.ParseUint(digits, 10, 64)
		if !ours || err != nil || f.name(from) != filepath.Join(f.cfg.Dir, name) {
			continue
		}
		one, err := f.look(from)
		if err != nil {
			return err
		}
		if one.size == 0 {
			f.cfg.Log.Warn("a file of the history of leases is no such file, or damaged; it is removed", "file", f.name(from))
			if err := f.cfg.FS.Remove(f.name(from)); err != nil {
				return err
			}
			continue
		}
		f.all = append(f.all, one)
	}
	for len(f.all) > 0 {
		last := &f.all[len(f.all)-1]
		b, err := vfs.ReadFile(f.cfg.FS, f.name(last.from.txid))
		if err != nil {
			return err
		}
		last.size = int64(len(b) - f.each(b, func(fr *frame) { f.end = fr.to }))
		if f.end.txid > 0 {
			break
		}
		if err := f.cfg.FS.Remove(f.name(last.from.txid)); err != nil { // nothing whole is in it
			return err
		}
		f.all = f.all[:len(f.all)-1]
	}
	return nil
}

// look reads the header of a file; its size is 0 if it has none.
func (f *files) look(from uint64) (one file, err error) {
	in, err := f.cfg.FS.Open(f.name(from))
	if err != nil {
		return one, err
	}
	defer func() { _ = in.Close() }() // only read
	b := make([]byte, headerBytes)
	n, err := in.ReadAt(b, 0)
	if n < headerBytes {
		if size, serr := in.Size(); serr != nil || size >= int64(headerBytes) {
			return one, errors.Join(err, serr)
		}
		return one, nil
	}
	at, ok := readHeader(b, f.cfg.ID)
	if !ok || at.txid != from {
		return one, nil
	}
	size, err := in.Size()
	return file{at, size}, err
}

// each calls fn for each whole frame of a file, and returns how many bytes there are behind
// the last.
func (f *files) each(b []byte, fn func(*frame)) (left int) {
	for b = b[min(headerBytes, len(b)):]; ; {
		payload, rest, ok := cutFrame(b)
		if !ok {
			return len(b)
		}
		fr, ok := readFrame(payload)
		if !ok {
			return len(b)
		}
		fn(&fr)
		b = rest
	}
}

// startAt says behind which record the files begin, if there are none.
func (f *files) startAt(at point) { f.end = at }

// write writes spans, and that they are all up to a record. After an error nothing was, and
// it can be called again.
func (f *files) write(t taken) error {
	frames, end := split(f.end, t)
	if len(frames) == 0 {
		return nil
	}
	free, _, err := f.cfg.FS.Usage(f.cfg.Dir)
	if err != nil {
		return err
	}
	var b []byte
	for i := range frames {
		b = appendFrame(b, &frames[i])
	}
	if free-int64(len(b)) < f.cfg.Reserve {
		return fmt.Errorf("only %d bytes of the disk are free, which are kept for other things", free)
	}
	last, fresh, err := f.place(int64(len(b)))
	at := last.size
	if fresh {
		b, at = append(header(f.cfg.ID, last.from), b...), 0
	}
	if err == nil {
		_, err = f.out.WriteAt(b, at)
	}
	if err == nil && t.sync {
		err = f.out.Sync()
	}
	if err != nil {
		if f.out != nil { // the next try decides for itself where to write
			_ = f.out.Close()
			f.out = nil
		}
		return err
	}
	last.size = at + int64(len(b))
	f.mu.Lock()
	if fresh {
		f.all = append(f.all, last)
	} else {
		f.all[len(f.all)-1] = last
	}
	f.mu.Unlock()
	f.end = end
	return f.prune(end.ms)
}

// split makes frames of what was taken, which begins behind a record, and returns where they
// end.
func split(at point, t taken) (frames []frame, end point) {
	cut := func(spans []Span, to point) {
		frames = append(frames, frame{from: at, to: to, spans: spans})
		at = to
	}
	rest := t.spans
	for n := 0; n < len(rest); {
		switch s := &rest[n]; {
		case s.Gap:
			to := at
			if n > 0 {
				to.ms = rest[n-1].To
			}
			if to.txid = max(at.txid, s.Epoch); n > 0 || to.txid > at.txid {
				cut(rest[:n], to)
			}
			at.txid, at.ms = s.TxID, s.To
			cut(nil, at)
			rest, n = rest[n+1:], 0
		case n >= frameSpans && s.TxID != rest[n-1].TxID:
			to := at
			to.txid, to.ms = rest[n-1].TxID, rest[n-1].To
			cut(rest[:n], to)
			rest, n = rest[n:], 0
		default:
			n++
		}
	}
	if len(rest) > 0 || t.to.txid > at.txid {
		cut(rest, t.to)
	}
	if len(frames) > 0 {
		frames[len(frames)-1].to.term, frames[len(frames)-1].to.nonce = t.to.term, t.to.nonce
		at = frames[len(frames)-1].to
	}
	return frames, at
}

// place returns the file to which so many bytes are appended, and whether it is a new one.
func (f *files) place(more int64) (last file, fresh bool, err error) {
	if n := len(f.all); n > 0 {
		last = f.all[n-1]
		if last.size+more <= max(f.cfg.Bytes/filesKept, 64<<10) {
			if f.out == nil {
				f.out, err = f.cfg.FS.OpenWrite(f.name(last.from.txid))
				if err == nil { // what is not whole could be taken for what follows
					err = f.out.Truncate(last.size)
				}
			}
			return last, false, err
		}
	}
	if err := f.shut(); err != nil {
		return last, false, err
	}
	last = file{from: point{txid: f.end.txid, ms: f.end.ms}}
	if f.out, err = f.cfg.FS.Create(f.name(last.from.txid)); err != nil {
		return last, true, err
	}
	return last, true, f.cfg.FS.SyncDir(f.cfg.Dir)
}

// shut makes the file that is written durable, and closes it.
func (f *files) shut() error {
	if f.out == nil {
		return nil
	}
	err := errors.Join(f.out.Sync(), f.out.Close())
	f.out = nil
	return err
}

// close makes durable what was written, and holds no file open until more is.
func (f *files) close() {
	if err := f.shut(); err != nil {
		f.cfg.Log.Warn("the history of leases could not be made durable; it may have a gap after a crash of the machine", "folder", f.cfg.Dir, "cause", err)
	}
}

// prune removes the files that are too many, or of which all is too old at a time.
func (f *files) prune(now int64) error {
	for {
		f.mu.Lock()
		var total int64
		for i := range f.all {
			total += f.all[i].size
		}
		if len(f.all) < 2 || total <= f.cfg.Bytes && f.all[1].from.ms >= now-f.cfg.Keep.Milliseconds() {
			f.mu.Unlock()
			return nil
		}
		first := f.all[0]
		f.all = append([]file(nil), f.all[1:]...)
		f.mu.Unlock()
		if err := f.cfg.FS.Remove(f.name(first.from.txid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			f.cfg.Log.Warn("a file of the history of leases could not be removed", "file", f.name(first.from.txid), "cause", err)
			return nil
		}
	}
}

// removeAll removes all files.
func (f *files) removeAll() error {
	errs := f.shut()
	for _, one := range f.all {
		errs = errors.Join(errs, f.cfg.FS.Remove(f.name(one.from.txid)))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.end = nil, point{}
	return errs
}

func (f *files) size() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.all {
		n += f.all[i].size
	}
	return n
}
