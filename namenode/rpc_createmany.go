package namenode

import (
	"context"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/engine"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// maxCreateMany is how many files one call makes.
const maxCreateMany = 1000

// CreateMany makes many whole files in one call. Each is journalled on its own;
// all wait for the disk together. As one after the other is made, the call counts
// as one of those under way.
func (s *writers) CreateMany(ctx context.Context, r *pb.CreateManyRequest) (*pb.CreateManyResponse, error) {
	if len(r.GetFiles()) > maxCreateMany {
		return nil, fserror.New(fserror.TooLarge, "", "", "a call makes at most %d files, not %d", maxCreateMany, len(r.GetFiles()))
	}
	resp := &pb.CreateManyResponse{Results: make([]*pb.CreateResult, len(r.GetFiles()))}
	var wait uint64
	for i, f := range r.GetFiles() {
		given := f.GetGivenUp()
		f.GivenUp = nil // a file that is sent again by Create is known without it
		f.Close = true
		out, _, w, err := s.create(ctx, f, engine.Request{Given: givenUp(f.GetCaller().GetSession(), given)})
		wait = max(wait, w)
		resp.Results[i] = &pb.CreateResult{Inode: uint64(out.Inode)}
		if err != nil {
			resp.Results[i] = &pb.CreateResult{Error: wire.Detail(fserror.With(err, "create", f.GetAt().AbsolutePath()))}
		}
	}
	if err := s.engine.WaitDurable(ctx, wait); err != nil {
		return nil, err
	}
	return resp, nil
}
