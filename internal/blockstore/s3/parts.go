package s3

import (
	"context"
	"io"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	// DefaultPartSize is from how many bytes on a named object is put in parts,
	// of so many bytes each: what breaks off is one part.
	DefaultPartSize = 256 << 20
	// maxParts is how many S3 takes.
	maxParts = 10_000
	// abortTimeout bounds the clearing up after a put in parts that failed.
	abortTimeout = 10 * time.Second
	// unfinishedAfter is how old a put in parts is that nobody finishes any more.
	unfinishedAfter = 24 * time.Hour
)

// putParts stores an object in parts, each with its checksum. It appears at the
// end, whole, if the name is free by then. What was put is given up on failure;
// what a crash leaves, removeUnfinished finds.
func (b *bucket) putParts(ctx context.Context, o object, body io.ReaderAt, c content) error {
	if err := b.open("put"); err != nil {
		return err
	}
	up, err := b.api.CreateMultipartUpload(ctx, &s3.CreateMultipartUploadInput{
		Bucket: aws.String(b.cfg.Bucket), Key: aws.String(o.name), ChecksumAlgorithm: types.ChecksumAlgorithmCrc32c,
	})
	if err != nil {
		return b.explain(ctx, "put", o.what, err)
	}
	id := aws.ToString(up.UploadId)
	parts, err := b.uploadParts(ctx, o, id, body, c)
	if err == nil {
		err = b.complete(ctx, o, id, parts, c)
	}
	if err != nil {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		if aerr := b.abort(after, o.name, id); aerr != nil {
			b.cfg.Logger.Warn("the parts of an object that was not finished could not be removed; it will be tried again", "object", o.what, "cause", aerr)
		}
	}
	return err
}

func (b *bucket) uploadParts(ctx context.Context, o object, id string, body io.ReaderAt, c content) ([]types.CompletedPart, error) {
	var parts []types.CompletedPart
	whole := uint32(0)
	for at := int64(0); at < c.size; at += b.cfg.PartSize {
		part := io.NewSectionReader(body, at, min(b.cfg.PartSize, c.size-at))
		crc, length, err := blockstore.SumCRC(part)
		if err == nil && length < part.Size() {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			_, err = part.Seek(0, io.SeekStart)
		}
		if err != nil {
			return nil, err
		}
		whole = blockstore.CombineCRC(whole, crc, length)
		number := aws.Int32(int32(len(parts) + 1)) //nolint:gosec // at most maxParts
		sum := aws.String(blockstore.EncodeChecksum(crc))
		out, err := b.api.UploadPart(ctx, &s3.UploadPartInput{
			Bucket: aws.String(b.cfg.Bucket), Key: aws.String(o.name), UploadId: aws.String(id), PartNumber: number,
			Body: part, ContentLength: aws.Int64(length), ChecksumCRC32C: sum,
		}, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware))
		if err != nil {
			return nil, b.explain(ctx, "put", o.what, err)
		}
		parts = append(parts, types.CompletedPart{PartNumber: number, ETag: out.ETag, ChecksumCRC32C: sum})
	}
	if whole != c.crc {
		return nil, fserror.New(fserror.Damaged, "put", "", "%s: the bytes have checksum %08x, %08x was announced", o.what, whole, c.crc)
	}
	return parts, nil
}

// complete makes the object of its parts. A lost answer leaves it to be found
// out whether it is there.
func (b *bucket) complete(ctx context.Context, o object, id string, parts []types.CompletedPart, c content) error {
	var t tries
	out, err := b.api.CompleteMultipartUpload(ctx, &s3.CompleteMultipartUploadInput{
		Bucket: aws.String(b.cfg.Bucket), Key: aws.String(o.name), UploadId: aws.String(id),
		MultipartUpload: &types.CompletedMultipartUpload{Parts: parts}, IfNoneMatch: aws.String(blockstore.IfNoneMatchAny),
	}, t.watch)
	if err == nil {
		if aws.ToString(out.VersionId) != "" {
			b.warnVersions()
		}
		return nil
	}
	e := b.explain(ctx, "put", o.what, err)
	if t.unsure && (e.Kind == fserror.Exists || e.Kind == fserror.Unavailable) || answerOf(err).code == "NoSuchUpload" {
		return b.settle(ctx, o, c, e)
	}
	return e
}

func (b *bucket) abort(ctx context.Context, name, id string) error {
	_, err := b.api.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{
		Bucket: aws.String(b.cfg.Bucket), Key: aws.String(name), UploadId: aws.String(id),
	})
	if err != nil && answerOf(err).code != "NoSuchUpload" {
		return b.explain(ctx, "delete", "an unfinished object", err)
	}
	return nil
}

// RemoveUnfinished gives up what was put in parts, and not finished, a day ago
// and earlier: whoever did it is gone. It returns how many there were.
func (s *Store) RemoveUnfinished(ctx context.Context) (removed int, err error) {
	if err := s.open("delete"); err != nil {
		return 0, err
	}
	in := &s3.ListMultipartUploadsInput{Bucket: aws.String(s.cfg.Bucket), Prefix: aws.String(s.root + namedFolder)}
	for range sparePages {
		page, err := s.api.ListMultipartUploads(ctx, in)
		if err != nil {
			return removed, s.explain(ctx, "list", "bucket "+s.cfg.Bucket, err)
		}
		for _, up := range page.Uploads {
			if s.cfg.Clock.Wall().Sub(aws.ToTime(up.Initiated)) < unfinishedAfter {
				continue
			}
			if err := s.abort(ctx, aws.ToString(up.Key), aws.ToString(up.UploadId)); err != nil {
				return removed, err
			}
			removed++
		}
		if !aws.ToBool(page.IsTruncated) {
			break
		}
		in.KeyMarker, in.UploadIdMarker = page.NextKeyMarker, page.NextUploadIdMarker
	}
	return removed, nil
}
