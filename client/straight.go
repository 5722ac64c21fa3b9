package client

import (
	"context"

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

// at is what has a path, in a call under ctx: a symbolic link at its end is meant itself.
func at(ctx context.Context, path string) *pb.Ref { return straightened(ctx, pb.At(path)) }

// follow is what a path leads to, likewise.
func follow(ctx context.Context, path string) *pb.Ref { return straightened(ctx, pb.Follow(path)) }

func straightened(ctx context.Context, r *pb.Ref) *pb.Ref {
	if !followsLinks(ctx) {
		r.How |= uint32(pb.RefHow_REF_HOW_NO_LINKS)
	}
	return r
}

// callerIn is who asks in a call under ctx.
func (f *engine) callerIn(ctx context.Context) *pb.Caller { return callerAt(f.caller, placesOf(ctx)) }
