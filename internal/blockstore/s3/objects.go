package s3

import (
	"context"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const namedFolder = "named/"

// maxNamed is the most bytes of a named object: what S3 takes in all, in as many
// parts as it takes.
func (s *Store) maxNamed() int64 { return min(5<<40, s.cfg.PartSize*maxParts) }

var _ blockstore.Objects = (*Store)(nil)

func (s *Store) named(op, name string) (object, error) {
	return object{s.root + namedFolder + name, "object " + name}, blockstore.CheckNamed(op, name)
}

// PutNamed implements blockstore.Objects.
func (s *Store) PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc32c uint32) error {
	o, err := s.named("put", name)
	switch {
	case err != nil:
		return err
	case length < 1:
		return fserror.New(fserror.InvalidArgument, "put", "", "%s: %d bytes", o.what, length)
	case length > s.maxNamed():
		return fserror.New(fserror.TooLarge, "put", "", "%s: %d bytes, at most %d are taken", o.what, length, s.maxNamed())
	case length > s.cfg.PartSize:
		return s.putParts(ctx, o, body, content{length, crc32c})
	}
	return s.put(ctx, o, io.NewSectionReader(body, 0, length), content{length, crc32c})
}

// GetNamed implements blockstore.Objects.
func (s *Store) GetNamed(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error) {
	o, err := s.named("get", name)
	if err != nil {
		return nil, err
	}
	return s.get(ctx, o, offset, length)
}

// StatNamed implements blockstore.Objects.
func (s *Store) StatNamed(ctx context.Context, name string) (blockstore.NamedInfo, uint32, error) {
	o, err := s.named("stat", name)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	info, c, err := s.stat(ctx, "stat", o, true)
	if err != nil {
		return blockstore.NamedInfo{}, 0, err
	}
	return blockstore.NamedInfo{Name: name, Length: info.size, Stored: info.stored}, c.crc, nil
}

// ListNamed implements blockstore.Objects.
func (s *Store) ListNamed(ctx context.Context, prefix, after string, limit int) ([]blockstore.NamedInfo, error) {
	if err := blockstore.CheckList(prefix, after); err != nil {
		return nil, err
	}
	var out []blockstore.NamedInfo
	folder := s.root + namedFolder
	from := ""
	if after >= prefix && after != "" {
		from = folder + after
	}
	err := s.list(ctx, folder+prefix, from, limit, func(name string, o types.Object) bool {
		if name = name[len(folder):]; blockstore.ValidNamed(name) {
			out = append(out, blockstore.NamedInfo{Name: name, Length: aws.ToInt64(o.Size), Stored: aws.ToTime(o.LastModified)})
		}
		return len(out) < limit
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeleteNamed implements blockstore.Objects.
func (s *Store) DeleteNamed(ctx context.Context, names ...string) error {
	objects := make([]object, len(names))
	for i, name := range names {
		var err error
		if objects[i], err = s.named("delete", name); err != nil {
			return err
		}
	}
	_, err := s.remove(ctx, objects)
	return err
}
