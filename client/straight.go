package client

import (
	"context"

	"github.com/leasefs/leasefs/internal/lowlevel/door"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// straightKey marks a context whose calls follow no symbolic link.
type straightKey struct{}

// WithoutLinks returns a context whose calls follow no symbolic link, neither on
// the way nor, where a call would, at the end of a path: Loop. For whoever works
// below a directory that others can change: Locate finds the directory itself
// once, and no link that is put there meanwhile leads out of it.
func WithoutLinks(ctx context.Context) context.Context {
	return context.WithValue(ctx, straightKey{}, true)
}

func followsLinks(ctx context.Context) bool { return ctx.Value(straightKey{}) == nil }

// at is what a reference leads to, in a call under ctx: a symbolic link at its end is
// meant itself.
func at(ctx context.Context, r door.Ref) *pb.Ref {
	out := &pb.Ref{Base: r.Base, Path: r.Path}
	if !followsLinks(ctx) {
		out.How = uint32(pb.RefHow_REF_HOW_NO_LINKS)
	}
	return out
}

// follow is at with such a link followed.
func follow(ctx context.Context, r door.Ref) *pb.Ref {
	out := at(ctx, r)
	out.How |= uint32(pb.RefHow_REF_HOW_FOLLOW_LAST)
	return out
}

// followPath is what a path leads to.
func followPath(ctx context.Context, path string) *pb.Ref { return follow(ctx, door.At(path)) }
