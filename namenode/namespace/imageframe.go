package namespace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
)

// The frame of an image; see docs/design/records-and-image.md.
const (
	imageMagic   = "LEASEFSI"
	imageVersion = 7
	imageHeader  = len(imageMagic) + 4 + 4 // magic, version, checksum
	chunkHeader  = 4 + 4                   // length, checksum
	chunkTarget  = 256 << 10               // bytes at which a chunk is written
	maxChunk     = 1 << 20                 // bytes that one may have
)

// chunkSum is the checksum of a chunk, its place among the chunks included.
func chunkSum(index uint64, payload []byte) uint32 {
	var i [8]byte
	binary.LittleEndian.PutUint64(i[:], index)
	return crc32.Update(crc32.Checksum(i[:], castagnoli), castagnoli, payload)
}

// imageWriter frames what a coder writes.
type imageWriter struct {
	coder
	w      io.Writer
	chunks uint64
	err    error // of w
}

func newImageWriter(w io.Writer) *imageWriter {
	iw := &imageWriter{w: w, coder: coder{encode: true, buf: make([]byte, 0, chunkTarget+64<<10)}}
	iw.more = func(int) {
		if len(iw.buf) >= chunkTarget {
			iw.flush()
		}
	}
	return iw
}

func (w *imageWriter) write(b []byte) {
	if w.err != nil || len(b) == 0 {
		return
	}
	if _, w.err = w.w.Write(b); w.err != nil {
		w.fail("it cannot be written")
	}
}

func (w *imageWriter) header() {
	head := make([]byte, 0, imageHeader)
	head = append(head, imageMagic...)
	head = binary.LittleEndian.AppendUint32(head, imageVersion)
	w.write(binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)))
}

// flush writes what has come together, in chunks.
func (w *imageWriter) flush() {
	for part := range slices.Chunk(w.buf, maxChunk) {
		w.chunk(part)
	}
	w.buf = w.buf[:0]
}

func (w *imageWriter) chunk(payload []byte) {
	var h [chunkHeader]byte
	binary.LittleEndian.PutUint32(h[:], uint32(len(payload))) //nolint:gosec // at most maxChunk
	binary.LittleEndian.PutUint32(h[4:], chunkSum(w.chunks, payload))
	w.chunks++
	w.write(h[:])
	w.write(payload)
}

func (w *imageWriter) finish() error {
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
}

func (e *ImageError) Error() string {
	s := fmt.Sprintf("image damaged at offset %d: %s", e.Offset, e.Detail)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// imageReader takes the frame off what a coder reads.
type imageReader struct {
	coder         // buf is what is left of mem
	mem    []byte // of the chunks read
	r      io.Reader
	offset int64 // of r
	chunks uint64
	end    bool
	err    *ImageError // in the frame
}

func newImageReader(r io.Reader) *imageReader {
	ir := &imageReader{r: r}
	ir.more = ir.fill
	return ir
}

// broken notes what is wrong with the frame.
func (r *imageReader) broken(offset int64, cause error, format string, args ...any) {
	if r.bad == nil {
		r.err = &ImageError{Offset: offset, Detail: fmt.Sprintf(format, args...), Err: cause}
		r.fail(r.err.Detail)
	}
}

// failure is the error that says what was wrong, which was found in a part.
func (r *imageReader) failure(part string) error {
	if r.err != nil {
		return r.err
	}
	return &ImageError{Offset: r.offset - int64(len(r.buf)), Detail: "the " + part + ": " + *r.bad}
}

// load fills b from the file.
func (r *imageReader) load(b []byte, what string) {
	n, err := io.ReadFull(r.r, b)
	r.offset += int64(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		r.broken(r.offset, err, "cannot read %s", what)
	}
}

func (r *imageReader) header() {
	var h [imageHeader]byte
	sum := len(h) - 4
	r.load(h[:], "the header")
	switch version := binary.LittleEndian.Uint32(h[len(imageMagic):]); {
	case string(h[:len(imageMagic)]) != imageMagic:
		r.broken(0, nil, "it does not begin as an image does")
	case binary.LittleEndian.Uint32(h[sum:]) != crc32.Checksum(h[:sum], castagnoli):
		r.broken(0, nil, "the header does not match its checksum")
	case version != imageVersion:
		r.broken(0, nil, "format %d is not the one known here, %d; it was written by another version of leasefs", version, imageVersion)
	}
}

// fill makes n bytes ready to be decoded, if there are so many.
func (r *imageReader) fill(n int) {
	for len(r.buf) < n && !r.end && r.bad == nil {
		r.chunk()
	}
}

// chunk reads one chunk behind what is left of those before.
func (r *imageReader) chunk() {
	var h [chunkHeader]byte
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

// finish returns an error unless all was read.
func (r *imageReader) finish() error {
	r.fill(1)
	if r.bad == nil && len(r.buf) > 0 {
		r.fail("there are bytes after it")
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
		return r.failure("end")
	}
	return nil
}
