package client

import (
	"context"
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Place is a directory, by its number, and the path that is believed to lead to it.
type Place struct {
	Path  string
	Inode uint64
}

// placesKey marks a context whose calls count on places.
type placesKey struct{}

// WithPlaces returns a context whose calls by path are carried out only while these
// directories are where they are believed to be, besides those of ctx; at most four.
// Else the error is one of which IsMoved tells. For whoever has checked what
// somebody may do in a directory, and then names what is in it by a path that others
// can make lead elsewhere.
func WithPlaces(ctx context.Context, at ...Place) context.Context {
	return context.WithValue(ctx, placesKey{}, append(slices.Clip(placesOf(ctx)), at...))
}

func placesOf(ctx context.Context) []Place {
	at, _ := ctx.Value(placesKey{}).([]Place)
	return at
}

// callerAt is a caller whose calls count on places.
func callerAt(c *pb.Caller, at []Place) *pb.Caller {
	if len(at) == 0 {
		return c
	}
	c = proto.CloneOf(c)
	for _, p := range at {
		c.Places = append(c.Places, &pb.Place{Path: p.Path, Inode: p.Inode})
	}
	return c
}

// moved is the reason of the NotFound error for a place that is not right.
const moved = "moved"

// IsMoved tells whether an error says that a directory of WithPlaces is not at its
// path. It is of kind NotFound.
func IsMoved(err error) bool {
	var e *fserror.Error
	return errors.As(err, &e) && e.Kind == fserror.NotFound && e.Reason == moved
}

// keptPlaces tells whether what is kept shows all places of a context to be right
// just now.
func (a *answers) keptPlaces(ctx context.Context) bool {
	for _, p := range placesOf(ctx) {
		if v, ok := a.kept(readKey{kind: readLstat, path: p.Path}); !ok || v.attr.GetInode() != p.Inode {
			return false
		}
	}
	return true
}

// inPlace tells whether a context's places say of a path's directory that it is
// another one.
func inPlace(ctx context.Context, path string, dir uint64) bool {
	at, _ := fspath.Split(path)
	return !slices.ContainsFunc(placesOf(ctx), func(p Place) bool { return p.Path == at && p.Inode != dir })
}
