package s3

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

const (
	blocksFolder = "blocks/"
	keyDigits    = 16
	// pageSize is the most that S3 lists, or deletes, at a time.
	pageSize = 1000
	// sparePages is how many pages List reads, beyond those it needs, in which
	// it finds nothing of ours, before it says so.
	sparePages = 1000
)

// blockName is the name of a block in the bucket.
func (s *Store) blockName(key blockstore.Key) string {
	return fmt.Sprintf("%s%s%0*x/%0*x", s.root, blocksFolder, keyDigits, key.Term, keyDigits, key.Seq)
}

func (s *Store) block(key blockstore.Key) object {
	return object{s.blockName(key), "block " + key.String()}
}

// parseBlockName is the inverse of blockName, for names after the folder.
func parseBlockName(name string) (blockstore.Key, bool) {
	first, second, _ := strings.Cut(name, "/")
	term, okT := blockstore.ParseDigits(first, keyDigits)
	seq, okS := blockstore.ParseDigits(second, keyDigits)
	return blockstore.Key{Term: term, Seq: seq}, okT && okS
}

// List returns up to limit blocks with keys greater than after, in the order of
// keys. Names that no block has are left out. Unsupported if the store does not
// list in the order of names.
func (s *Store) List(ctx context.Context, after blockstore.Key, limit int) ([]blockstore.Info, error) {
	var out []blockstore.Info
	folder := s.root + blocksFolder
	err := s.list(ctx, folder, s.blockName(after), limit, func(name string, o types.Object) bool {
		if key, ok := parseBlockName(name[len(folder):]); ok {
			out = append(out, blockstore.Info{Key: key, Length: aws.ToInt64(o.Size), Stored: aws.ToTime(o.LastModified)})
		}
		return len(out) < limit
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// list calls each for names that begin with prefix and come after after (empty:
// all), in order, until it returns false. It holds one page.
func (b *bucket) list(ctx context.Context, prefix, after string, limit int, each func(name string, o types.Object) bool) error {
	if err := b.open("list"); err != nil || limit <= 0 {
		return err
	}
	what := "bucket " + b.cfg.Bucket
	for range limit/pageSize + 1 + sparePages {
		in := &s3.ListObjectsV2Input{
			Bucket: aws.String(b.cfg.Bucket), Prefix: aws.String(prefix),
			MaxKeys: aws.Int32(int32(min(limit, pageSize))), EncodingType: types.EncodingTypeUrl,
		}
		if after != "" {
			in.StartAfter = aws.String(after)
		}
		page, err := b.api.ListObjectsV2(ctx, in)
		if err != nil {
			return b.explain(ctx, "list", what, err)
		}
		for _, o := range page.Contents {
			name := aws.ToString(o.Key)
			if page.EncodingType == types.EncodingTypeUrl {
				if name, err = url.QueryUnescape(name); err != nil {
					return fserror.Wrap(fserror.Unsupported, "list", "", fmt.Errorf("%s: %w", what, err))
				}
			}
			if name <= after || !strings.HasPrefix(name, prefix) {
				return fserror.New(fserror.Unsupported, "list", "", "%s: the block store lists %.128q after %.128q, out of order; use another store", what, name, after)
			}
			after = name
			if !each(name, o) {
				return nil
			}
		}
		if !aws.ToBool(page.IsTruncated) {
			return nil
		}
		if len(page.Contents) == 0 {
			return fserror.New(fserror.Unsupported, "list", "", "%s: the block store says that there is more, and lists nothing: use another", what)
		}
	}
	return fserror.New(fserror.Unavailable, "list", "", "%s: over %d foreign names below %s: remove them", what, sparePages*pageSize, prefix)
}

// Delete removes blocks, up to 1,000 by one call of the store; one that is
// missing already is no error. It continues after a refusal, and returns the
// first with how many there were, as a *blockstore.KeptError if the store names
// all that it keeps. An error of a whole call ends it.
func (s *Store) Delete(ctx context.Context, keys ...blockstore.Key) error {
	objects := make([]object, len(keys))
	for i, key := range keys {
		objects[i] = s.block(key)
	}
	refused, err := s.remove(ctx, objects)
	if len(refused) == 0 {
		return err
	}
	kept := &blockstore.KeptError{Err: err}
	for i, key := range keys {
		if slices.Contains(refused, objects[i].name) {
			kept.Keys = append(kept.Keys, key)
		}
	}
	if len(kept.Keys) < len(refused) { // one of a name that nobody gave: it is not known what is there
		return err
	}
	return kept
}

// remove removes objects, and returns the names of those that the store refused to.
func (b *bucket) remove(ctx context.Context, objects []object) (refused []string, err error) {
	if err := b.open("delete"); err != nil {
		return nil, err
	}
	var first *types.Error
	for len(objects) > 0 {
		page := objects[:min(len(objects), pageSize)]
		objects = objects[len(page):]
		ids := make([]types.ObjectIdentifier, len(page))
		for i, o := range page {
			ids[i].Key = aws.String(o.name)
		}
		out, err := b.api.DeleteObjects(ctx, &s3.DeleteObjectsInput{
			Bucket: aws.String(b.cfg.Bucket), Delete: &types.Delete{Objects: ids, Quiet: aws.Bool(true)},
		})
		if err != nil {
			return nil, b.explain(ctx, "delete", fmt.Sprintf("%s and %d more", page[0].what, len(page)-1), err)
		}
		for i := range out.Errors {
			if code := aws.ToString(out.Errors[i].Code); code == "NoSuchKey" {
				continue
			}
			if refused = append(refused, aws.ToString(out.Errors[i].Key)); first == nil {
				first = &out.Errors[i]
			}
		}
	}
	if first == nil {
		return nil, nil
	}
	kind := fserror.Unavailable
	if aws.ToString(first.Code) == "AccessDenied" {
		kind = fserror.Permission
	}
	return refused, fserror.New(kind, "delete", "", "the block store refuses to delete %s: %s %s (and %d more)",
		strings.TrimPrefix(aws.ToString(first.Key), b.root), aws.ToString(first.Code), aws.ToString(first.Message), len(refused)-1)
}

// Namespaces lists what is directly below the prefix of a location, up to 1,000
// names: the ids of the namespaces whose stores are there. Config.NamespaceID is
// not looked at.
func Namespaces(ctx context.Context, cfg Config) ([]string, error) {
	s, err := Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = s.Close() }()
	if err := s.Check(ctx); err != nil {
		return nil, err
	}
	prefix := ""
	if cfg.Prefix != "" {
		prefix = cfg.Prefix + "/"
	}
	page, err := s.api.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket: aws.String(cfg.Bucket), Prefix: aws.String(prefix), Delimiter: aws.String("/"), MaxKeys: aws.Int32(pageSize),
	})
	if err != nil {
		return nil, s.explain(ctx, "list", "bucket "+cfg.Bucket, err)
	}
	names := make([]string, len(page.CommonPrefixes))
	for i, p := range page.CommonPrefixes {
		names[i] = strings.TrimSuffix(strings.TrimPrefix(aws.ToString(p.Prefix), prefix), "/")
	}
	return names, nil
}
