package transfer

import (
	"bytes"
	"errors"
	"io"
)

// LastLines returns the offset at which the last n lines of the first length
// bytes of r begin. A last line without an end counts as one.
func LastLines(r io.ReaderAt, length, n int64) (int64, error) {
	if n <= 0 {
		return length, nil
	}
	const step = 64 << 10
	buf := make([]byte, step)
	for end := length; end > 0; {
		start := max(0, end-step)
		b := buf[:end-start]
		if got, err := r.ReadAt(b, start); err != nil && (got < len(b) || !errors.Is(err, io.EOF)) {
			return 0, err
		}
		if end == length { // the end of the last line begins none
			b = bytes.TrimSuffix(b, []byte{'\n'})
		}
		for {
			i := bytes.LastIndexByte(b, '\n')
			if i < 0 {
				break
			}
			if n--; n == 0 {
				return start + int64(i) + 1, nil
			}
			b = b[:i]
		}
		end = start
	}
	return 0, nil
}

// FirstLines copies the first n lines of r to w.
func FirstLines(w io.Writer, r io.Reader, n int64) error {
	buf := make([]byte, 64<<10)
	for n > 0 {
		got, err := r.Read(buf)
		b := buf[:got]
		end := 0
		for n > 0 {
			i := bytes.IndexByte(b[end:], '\n')
			if i < 0 {
				end = len(b)
				break
			}
			end += i + 1
			n--
		}
		if _, werr := w.Write(b[:end]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
