package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"unicode"
)

// The frame of an image; see docs/design/records-and-image.md.
const (
	magic       = "LEASEFSI"
	headerSize  = len(magic) + 4 + 4 // magic, version, checksum
	chunkHead   = 4 + 4              // length, checksum
	chunkTarget = 256 << 10          // bytes at which a chunk is written
	maxChunk    = 1 << 20            // bytes that one may have
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// chunkSum is the checksum of a chunk, its place among the chunks included.
func chunkSum(index uint64, payload []byte) uint32 {
	var i [8]byte
	binary.LittleEndian.PutUint64(i[:], index)
	return crc32.Update(crc32.Checksum(i[:], castagnoli), castagnoli, payload)
}

// ImageWriter is a Coder that frames what it writes.
type ImageWriter struct {
	Coder
	w      io.Writer
	chunks uint64
	err    error // of w
}

// NewImageWriter returns a Coder that writes an image to w, in pieces of about 256 KiB.
// The version is that of the layout of what is in it.
func NewImageWriter(w io.Writer, version uint32) *ImageWriter {
	iw := &ImageWriter{w: w, Coder: Coder{writes: true, buf: make([]byte, 0, chunkTarget+64<<10)}}
	iw.more = func(int) {
		if len(iw.buf) >= chunkTarget {
			iw.flush()
		}
	}
	iw.header(version)
	return iw
}

func (w *ImageWriter) write(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	if _, w.err = w.w.Write(b); w.err != nil {
		w.Fail("it cannot be written")
	}
}

func (w *ImageWriter) header(version uint32) {
	head := make([]byte, 0, headerSize)
	head = append(head, magic...)
	head = binary.LittleEndian.AppendUint32(head, version)
	w.write(binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)))
}

// flush writes what has come together, in chunks.
func (w *ImageWriter) flush() {
	for part := range slices.Chunk(w.buf, maxChunk) {
		w.chunk(part)
	}
	w.buf = w.buf[:0]
}

func (w *ImageWriter) chunk(payload []byte) {
	var h [chunkHead]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(payload))) //nolint:gosec // at most maxChunk
	binary.LittleEndian.PutUint32(h[4:], chunkSum(w.chunks, payload))
	w.chunks++
	w.write(h[:])
	w.write(payload)
}

// Finish writes the rest and the end. The error is that of the io.Writer.
func (w *ImageWriter) Finish() error {
	w.flush()
	w.chunk(nil)
	return w.err
}

// ImageError says that an image is not what was written, and where. An image
// that is merely cut off has io.ErrUnexpectedEOF as its cause.
type ImageError struct {
	Offset int64  // bytes from the beginning, of about the place
	Detail string // what does not fit
	Err    error  // of the reader, if that is why
	Format uint32 // not 0: the image is in this unknown format, which need not be damage
	Newer  bool   // and that of a newer release
}

func (e *ImageError) Error() string {
	if e.Format != 0 {
		return "image: " + e.Detail
	}
	s := fmt.Sprintf("image damaged at offset %d: %s", e.Offset, e.Detail)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// ImageReader is a Coder that takes the frame off what it reads.
type ImageReader struct {
	Coder         // buf is what is left of mem
	mem    []byte // of the chunks read
	r      io.Reader
	offset int64 // of r
	// Version is the version of the layout of the image's content.
	Version uint32
	chunks  uint64
	end     bool
	err     *ImageError // what is wrong with the frame
}

// SinceRelease is from which version on the content of an image begins with the name of a
// release that can read it, as Text.
const SinceRelease = 13

// NewImageReader returns a Coder that reads an image whose version is from oldest to newest,
// and checks its checksums. The image must be read to its end. The error about a newer one
// names a release that can read it.
func NewImageReader(r io.Reader, oldest, newest uint32) *ImageReader {
	ir := &ImageReader{r: r}
	ir.more = ir.fill
	ir.header(oldest, newest)
	return ir
}

// broken notes what is wrong with the frame.
func (r *ImageReader) broken(offset int64, cause error, format string, args ...any) {
	if r.bad == nil {
		r.err = &ImageError{Offset: offset, Detail: fmt.Sprintf(format, args...), Err: cause}
		r.Fail(r.err.Detail)
	}
}

// Failure is the error that says what was wrong, which was found in a part.
func (r *ImageReader) Failure(part string) error {
	if r.err != nil {
		return r.err
	}
	return &ImageError{Offset: r.offset - int64(len(r.buf)), Detail: "the " + part + ": " + *r.bad}
}

// load fills b from the file.
func (r *ImageReader) load(b []byte, what string) {
	n, err := io.ReadFull(r.r, b)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		r.broken(r.offset, err, "cannot read %s", what)
	}
}

func (r *ImageReader) header(oldest, newest uint32) {
	var h [headerSize]byte
	sum := len(h) - 4
	r.load(h[:], "the header")
	r.Version = binary.LittleEndian.Uint32(h[len(magic):])
	switch {
	case string(h[:len(magic)]) != magic:
		r.broken(0, nil, "it does not begin as an image does")
	case binary.LittleEndian.Uint32(h[sum:]) != crc32.Checksum(h[:sum], castagnoli):
		r.broken(0, nil, "the header does not match its checksum")
	case r.Version > newest:
		use := "a newer release wrote it; use that one"
		if by := r.release(); by != "" {
			use = "leasefs " + by + " can read it; install that release or a newer one"
		}
		r.broken(0, nil, "it has format %d, and the newest that this release of leasefs knows is %d: %s", r.Version, newest, use)
		r.err.Format, r.err.Newer = r.Version, true
	case r.Version < oldest:
		r.broken(0, nil, "it has format %d, which this release of leasefs does not know: use the release that wrote it, or restore from a backup", r.Version)
		r.err.Format = max(r.Version, 1)
	}
}

// release reads what an image of an unknown version says of who can read it; empty: nothing.
func (r *ImageReader) release() (by string) {
	if r.Version >= SinceRelease && r.Next() {
		r.Text(&by)
	}
	if !r.OK() || strings.ContainsFunc(by, func(c rune) bool { return !unicode.IsPrint(c) }) {
		by = ""
	}
	r.bad, r.err = nil, nil
	return by
}

// fill makes n bytes ready to be decoded, if there are so many.
func (r *ImageReader) fill(n int) {
	for len(r.buf) < n && !r.end && r.bad == nil {
		r.chunk()
	}
}

// chunk reads one chunk behind what is left of those before.
func (r *ImageReader) chunk() {
	var h [chunkHead]byte
	begin := r.offset
	r.load(h[:], "a chunk's header")
	n := binary.LittleEndian.Uint32(h[:])
	if n > maxChunk {
		r.broken(begin, nil, "a chunk of %d bytes is over the limit of %d", n, maxChunk)
	}
	if r.bad != nil {
		return
	}
	left := copy(r.mem, r.buf)
	r.mem = slices.Grow(r.mem[:left], int(n))[:left+int(n)]
	r.buf = r.mem
	payload := r.mem[left:]
	r.load(payload, "a chunk")
	if chunkSum(r.chunks, payload) != binary.LittleEndian.Uint32(h[4:]) {
		r.broken(begin, nil, "chunk %d of %d bytes does not match its checksum", r.chunks, n)
	}
	r.chunks++
	r.end = n == 0
}

// Skip reads what is left, for its checksums alone.
func (r *ImageReader) Skip() {
	for r.buf = nil; r.bad == nil && !r.end; r.buf = nil {
		r.chunk()
	}
}

// Finish returns an error unless all was read.
func (r *ImageReader) Finish() error {
	r.fill(1)
	if r.bad == nil && len(r.buf) > 0 {
		r.Fail("there are bytes after it")
	}
	if r.bad == nil {
		switch n, err := io.ReadFull(r.r, make([]byte, 1)); {
		case n > 0:
			r.broken(r.offset, nil, "the file has bytes after the image")
		case !errors.Is(err, io.EOF):
			r.broken(r.offset, err, "cannot read the end")
		}
	}
	if r.bad != nil {
		return r.Failure("end")
	}
	return nil
}
