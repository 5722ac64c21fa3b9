package s3

import (
	"context"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Get reads length bytes from offset on; length -1 reads to the end. A range
// that goes beyond the end is cut off; one that begins there or beyond is
// InvalidArgument. The bytes are not verified.
//
// A body that breaks off is asked for again from where it did. Its errors are
// those of Get, and end with ctx. It must be closed: it has a connection.
func (s *Store) Get(ctx context.Context, key blockstore.Key, offset, length int64) (io.ReadCloser, error) {
	return s.get(ctx, s.block(key), offset, length)
}

func (b *bucket) get(ctx context.Context, o object, offset, length int64) (io.ReadCloser, error) {
	if err := b.open("get"); err != nil {
		return nil, err
	}
	if offset < 0 || length < -1 {
		return nil, fserror.New(fserror.InvalidArgument, "get", "", "%s: no range of %d bytes from %d on", o.what, length, offset)
	}
	if length == 0 {
		if info, _, err := b.stat(ctx, "get", o, false); err != nil {
			return nil, err
		} else if offset >= info.size {
			return nil, fserror.New(fserror.InvalidArgument, "get", "", "%s has %d bytes: no range from %d on", o.what, info.size, offset)
		}
		return io.NopCloser(io.MultiReader()), nil
	}
	r := &reader{bucket: b, ctx: ctx, object: o, next: offset, left: length, tries: b.cfg.MaxTries}
	if err := r.begin(); err != nil {
		return nil, err
	}
	return r, nil
}

// reader is a body that continues after it was interrupted.
type reader struct {
	bucket *bucket
	ctx    context.Context
	object object
	body   io.ReadCloser // nil: has to be asked for
	next   int64         // offset of the byte that comes next
	left   int64         // bytes to come
	tries  int           // interruptions left without a byte between them
}

// begin asks for what is left; left -1 is all, and becomes what the store has.
func (r *reader) begin() error {
	in := &s3.GetObjectInput{Bucket: aws.String(r.bucket.cfg.Bucket), Key: aws.String(r.object.name)}
	ranged := r.next != 0 || r.left >= 0
	if ranged {
		value := "bytes=" + strconv.FormatInt(r.next, 10) + "-"
		if r.left >= 0 {
			value += strconv.FormatInt(r.next+r.left-1, 10)
		}
		in.Range = aws.String(value)
	}
	out, err := r.bucket.api.GetObject(r.ctx, in)
	if err != nil {
		return r.bucket.explain(r.ctx, "get", r.object.what, err)
	}
	if out.ContentLength == nil || (ranged && out.ContentRange == nil) {
		_ = out.Body.Close()
		return fserror.New(fserror.Unsupported, "get", "", "%s: the block store ignores ranges, or does not say how much it sends: use another", r.object.what)
	}
	r.body, r.left = out.Body, *out.ContentLength
	return nil
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for {
		if r.left == 0 {
			return 0, io.EOF
		}
		if len(p) == 0 {
			return 0, nil
		}
		if r.body == nil {
			if err := r.begin(); err != nil {
				return 0, err
			}
		}
		n, err := r.body.Read(p[:min(int64(len(p)), r.left)])
		r.next += int64(n)
		r.left -= int64(n)
		if n > 0 {
			r.tries = r.bucket.cfg.MaxTries
		}
		if err != nil && r.left > 0 {
			_ = r.body.Close()
			r.body = nil
			if r.tries--; r.tries <= 0 || r.ctx.Err() != nil {
				return n, r.broken(err)
			}
		}
		if n > 0 {
			return n, nil
		}
	}
}

func (r *reader) broken(err error) error {
	kind := fserror.Unavailable
	if cerr := r.ctx.Err(); cerr != nil {
		kind, err = fserror.Canceled, cerr
		if errors.Is(cerr, context.DeadlineExceeded) {
			kind = fserror.Deadline
		}
	}
	return &fserror.Error{Op: "get", Kind: kind, Err: err,
		Message: r.object.what + ": broken off at byte " + strconv.FormatInt(r.next, 10)}
}

// Close gives the connection back.
func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	_ = r.body.Close() // what was not read is of no interest
	r.body = nil
	r.left = 0
	return nil
}

// Stat returns NotFound if there is no complete object of the key.
func (s *Store) Stat(ctx context.Context, key blockstore.Key) (blockstore.Info, error) {
	info, _, err := s.stat(ctx, "stat", s.block(key), false)
	return blockstore.Info{Key: key, Length: info.size, Stored: info.stored}, err
}

type found struct {
	size   int64
	stored time.Time
}

// stat looks at an object, and on demand finds its checksum: by the store's
// word, or if it gives none, by reading it all.
func (b *bucket) stat(ctx context.Context, op string, o object, checksum bool) (found, content, error) {
	if err := b.open(op); err != nil {
		return found{}, content{}, err
	}
	in := &s3.HeadObjectInput{Bucket: aws.String(b.cfg.Bucket), Key: aws.String(o.name)}
	if checksum {
		in.ChecksumMode = types.ChecksumModeEnabled
	}
	out, err := b.api.HeadObject(ctx, in)
	if err != nil {
		e := b.explain(ctx, op, o.what, err)
		if a := answerOf(err); a.status/100 == 4 || a.status/100 == 3 {
			e = b.whyNot(ctx, op, o, e)
		}
		return found{}, content{}, e
	}
	info := found{aws.ToInt64(out.ContentLength), aws.ToTime(out.LastModified)}
	if !checksum {
		return info, content{}, nil
	}
	// A checksum of parts is not that of the object.
	if crc, ok := blockstore.DecodeChecksum(aws.ToString(out.ChecksumCRC32C)); ok && out.ChecksumType != types.ChecksumTypeComposite {
		return info, content{info.size, crc}, nil
	}
	crc, size, err := b.sum(ctx, o)
	return info, content{size, crc}, err
}

// whyNot explains the refusal of a HEAD, whose answer has no body: it could be
// the bucket that is missing. A GET of the object says it.
func (b *bucket) whyNot(ctx context.Context, op string, o object, e *fserror.Error) *fserror.Error {
	out, err := b.api.GetObject(ctx, &s3.GetObjectInput{
		Bucket: aws.String(b.cfg.Bucket), Key: aws.String(o.name), Range: aws.String("bytes=0-0"),
	})
	if err != nil {
		return b.explain(ctx, op, o.what, err)
	}
	_ = out.Body.Close()
	if e.Kind == fserror.NotFound { // it came in between
		return fserror.New(fserror.Unavailable, op, "", "%s: it came while it was looked for", o.what)
	}
	return e
}

// sum reads an object for its checksum.
func (b *bucket) sum(ctx context.Context, o object) (crc uint32, size int64, err error) {
	r, err := b.get(ctx, o, 0, -1)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = r.Close() }()
	return blockstore.SumCRC(r)
}
