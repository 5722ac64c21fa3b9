package blockstore

import (
	"bytes"
	"context"
	"io"
	"regexp"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// NamedInfo is what a store knows of a named object.
type NamedInfo struct {
	Name   string
	Length int64     // bytes
	Stored time.Time // when it was put, by the store's clock
}

// Objects keeps immutable objects by name beside the blocks of a namespace: the
// namenode's images. It is safe for concurrent use, also by several processes:
// the first to put a name wins.
//
// A name is one that ValidNamed accepts; others are InvalidArgument. Errors are
// those of Store.
type Objects interface {
	// PutNamed stores the first length bytes of body, durable when it returns.
	// They may be read several times. Exists if the name is taken, Damaged if the
	// bytes do not have that checksum: nothing is stored then.
	PutNamed(ctx context.Context, name string, body io.ReaderAt, length int64, crc32c uint32) error
	// GetNamed reads length bytes from offset on; -1 reads to the end. The
	// bytes are not verified. The body has to be closed.
	GetNamed(ctx context.Context, name string, offset, length int64) (io.ReadCloser, error)
	// StatNamed returns the checksum too. With a store that does not tell it,
	// the object is read for it.
	StatNamed(ctx context.Context, name string) (info NamedInfo, crc32c uint32, err error)
	// ListNamed returns up to limit objects whose names begin with prefix and
	// come after after, in the order of names. prefix and after may be empty.
	ListNamed(ctx context.Context, prefix, after string, limit int) ([]NamedInfo, error)
	// DeleteNamed removes objects; one that is missing already is no error.
	DeleteNamed(ctx context.Context, names ...string) error
}

var namedName = regexp.MustCompile(`^[a-z0-9._-]{1,200}$`)

// ValidNamed reports whether a named object can have this name: at most 200
// bytes of a-z, 0-9, dot, hyphen and underscore, but "." and "..". There are no
// slashes: stores that keep files list names with them in another order, and
// cannot have both a and a/b.
func ValidNamed(name string) bool {
	return namedName.MatchString(name) && name != "." && name != ".."
}

// CheckNamed is InvalidArgument for a name that ValidNamed does not accept.
func CheckNamed(op, name string) error {
	if !ValidNamed(name) {
		return fserror.New(fserror.InvalidArgument, op, "", "%.250q is no name of an object (at most 200 of a-z, 0-9, dot, hyphen, underscore)", name)
	}
	return nil
}

// CheckList refuses a prefix and a name to list from that no name can begin with.
func CheckList(prefix, after string) error {
	for _, part := range []string{prefix, after} {
		if part != "" && !ValidNamed(part) {
			return fserror.New(fserror.InvalidArgument, "list", "", "%.250q begins no name of an object", part)
		}
	}
	return nil
}

// PutBytes stores a small named object.
func PutBytes(ctx context.Context, o Objects, name string, data []byte) error {
	return o.PutNamed(ctx, name, bytes.NewReader(data), int64(len(data)), CRC(data))
}

// GetBytes reads a named object, but not more than most bytes.
func GetBytes(ctx context.Context, o Objects, name string, most int64) ([]byte, error) {
	r, err := o.GetNamed(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return io.ReadAll(io.LimitReader(r, most))
}

// Names lists the names of all objects that begin with prefix, in order.
func Names(ctx context.Context, o Objects, prefix string) (names []string, err error) {
	for after := ""; ; {
		const page = 1_000_000 // a folder is read once for each
		infos, err := o.ListNamed(ctx, prefix, after, page)
		if err != nil {
			return nil, err
		}
		for _, info := range infos {
			after = info.Name
			names = append(names, after)
		}
		if len(infos) < page {
			return names, nil
		}
	}
}
