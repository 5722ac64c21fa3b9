package transfer

import (
	"bytes"
	"errors"
	"io"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Resume returns what is left of src, the whole input of a file, of which the
// file has the first length bytes already: they are read and skipped, and, if
// file is not nil, compared with what it has. Reading fails (NotAtEnd) if src is
// shorter, or differs.
func Resume(src io.Reader, length int64, file io.Reader) io.Reader {
	return &resumed{src: src, length: length, left: length, file: file}
}

type resumed struct {
	src          io.Reader
	length, left int64
	file         io.Reader
	buf, have    []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	for r.left > 0 {
		if err := r.skip(); err != nil {
			return 0, err
		}
	}
	return r.src.Read(p)
}

// skip reads a part of what is there already.
func (r *resumed) skip() error {
	if r.buf == nil {
		r.buf, r.have = make([]byte, chunkSize), make([]byte, chunkSize)
	}
	n, err := r.src.Read(r.buf[:min(r.left, chunkSize)])
	if r.file != nil {
		if _, ferr := io.ReadFull(r.file, r.have[:n]); ferr != nil {
			return ferr
		}
		if at := differs(r.buf[:n], r.have[:n]); at >= 0 {
			return r.refuse("the input differs from the file at byte %d; is it the input of another file?", r.length-r.left+int64(at))
		}
	}
	r.left -= int64(n)
	if errors.Is(err, io.EOF) {
		if r.left == 0 {
			return nil // the next read says so again
		}
		return r.refuse("the input ends after %d bytes, and the file has %d already; is it the input of another file?", r.length-r.left, r.length)
	}
	return err
}

func (r *resumed) refuse(format string, args ...any) error {
	e := fserror.New(fserror.NotAtEnd, "", "", format, args...)
	e.Length = r.length
	return e
}

// differs returns where two slices of one length differ first, or -1.
func differs(a, b []byte) int {
	if bytes.Equal(a, b) {
		return -1
	}
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
