package transfer

import (
	"bufio"
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
	for b := bufio.NewReaderSize(r, 64<<10); n > 0; {
		part, err := b.ReadSlice('\n')
		if _, werr := w.Write(part); werr != nil {
			return werr
		}
		switch {
		case err == nil:
			n--
		case errors.Is(err, io.EOF):
			return nil
		case !errors.Is(err, bufio.ErrBufferFull): // a full buffer: the line continues
			return err
		}
	}
	return nil
}
