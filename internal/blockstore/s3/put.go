package s3

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// object names one object, in the bucket and for people.
type object struct{ name, what string }

// content is what an object has, or is to have.
type content struct {
	size int64
	crc  uint32
}

// Put stores a block, durable when it returns.
//
// Exists if the key is taken (not if a try ended without an answer and the key
// has the very bytes), Damaged if the object has not the checksum, or
// lost it on the way, InvalidArgument if it is empty, TooLarge, NoSpace,
// Permission, Closed, Canceled, Deadline, Unavailable (it may be stored then).
func (s *Store) Put(ctx context.Context, key blockstore.Key, obj []byte, crc32c uint32) error {
	if err := blockstore.CheckLength(key, int64(len(obj)), s.cfg.MaxObject); err != nil {
		return err
	}
	if got := blockstore.CRC(obj); got != crc32c {
		return fserror.New(fserror.Damaged, "put", "", "block %s: the bytes have checksum %08x, %08x was announced", key, got, crc32c)
	}
	return s.put(ctx, s.block(key), bytes.NewReader(obj), content{int64(len(obj)), crc32c})
}

// put stores an object under the same conditions as a signed PUT.
func (b *bucket) put(ctx context.Context, o object, body io.ReadSeeker, c content) error {
	if err := b.open("put"); err != nil {
		return err
	}
	var t tries
	out, err := b.api.PutObject(ctx, &s3.PutObjectInput{
		Bucket:         aws.String(b.cfg.Bucket),
		Key:            aws.String(o.name),
		Body:           body,
		ContentLength:  aws.Int64(c.size),
		ChecksumCRC32C: aws.String(blockstore.EncodeChecksum(c.crc)),
		IfNoneMatch:    aws.String(blockstore.IfNoneMatchAny),
	}, t.watch, s3.WithAPIOptions(v4.SwapComputePayloadSHA256ForUnsignedPayloadMiddleware)) // the CRC covers the bytes
	if err == nil {
		if aws.ToString(out.VersionId) != "" {
			b.warnVersions()
		}
		return nil
	}
	e := b.explain(ctx, "put", o.what, err)
	if t.unsure && (e.Kind == fserror.Exists || e.Kind == fserror.Unavailable) {
		return b.settle(ctx, o, c, e)
	}
	return e
}

// settle finds out what became of a PUT of which a try ended without a clear
// answer: an earlier try may have stored it, and a server that refuses a long
// body may break the connection off before its answer is read. It returns nil
// if the store has just that content under the name, Exists if it has another.
func (b *bucket) settle(ctx context.Context, o object, want content, e *fserror.Error) error {
	_, got, err := b.stat(ctx, "put", o, true)
	switch {
	case err != nil && e.Kind == fserror.Unavailable:
		return e
	case errors.Is(err, fserror.NotFound):
		return fserror.New(fserror.Unavailable, "put", "", "%s: taken when it was put, and gone when it was looked at", o.what)
	case err != nil:
		return err
	case got != want:
		return fserror.New(fserror.Exists, "put", "", "%s: %s", o.what, kindText(fserror.Exists))
	}
	return nil
}

// warnVersions tells once that deleting frees nothing.
func (b *bucket) warnVersions() {
	b.versions.Do(func() {
		b.cfg.Logger.Warn("the bucket keeps old versions: blocks that are deleted still take room; suspend versioning, or let a lifecycle rule remove what is not current",
			"bucket", b.cfg.Bucket, "endpoint", b.cfg.where())
	})
}
