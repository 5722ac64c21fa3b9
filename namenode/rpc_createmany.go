package namenode

import (
	"context"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/namenode/engine"
	"github.com/leasefs/leasefs/namenode/namespace"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxCreateMany is how many files one call makes.
	maxCreateMany = 1000
	// maxManyKeys is about how many cache keys the answer to one such call has.
	maxManyKeys = 4096
)

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
		out, _, w, err := s.create(ctx, f, engine.Request{Given: givenUp(f.GetCaller().GetSession(), given), NoWait: r.GetNoWait()})
		wait = max(wait, w)
		resp.Results[i] = &pb.CreateResult{Inode: uint64(out.Inode)}
		if err != nil {
			resp.Results[i] = &pb.CreateResult{Error: wire.Detail(fserror.With(err, "create", f.GetAt().AbsolutePath()))}
		}
	}
	if err := s.engine.WaitDurable(ctx, wait); err != nil {
		return nil, err
	}
	s.lookAtMany(ctx, r.GetFiles(), resp)
	return resp, nil
}

// lookAtMany adds to an answer what those files that were made and their
// directories look like now, for sessions that cache. All is seen under one lock,
// and what may not be kept is left out: then nothing is to be waited for.
func (s *writers) lookAtMany(ctx context.Context, files []*pb.CreateRequest, resp *pb.CreateManyResponse) {
	// Whose groups are looked up before the lock is taken: that may take long.
	callers := make([]*namespace.Call, len(files))
	asked := false
	for i, f := range files {
		if !f.GetCache() || resp.Results[i].GetError() != nil {
			continue
		}
		c, err := s.caller(ctx, f.GetCaller())
		if err != nil {
			continue // of what is left out the caller asks
		}
		callers[i], asked = c, true
	}
	if !asked {
		return
	}
	seen := make(map[namespace.Ref]bool)
	room := maxManyKeys
	look := func(tx *engine.Tx, i int, at namespace.Ref) (*pb.Attr, []*pb.CacheKey) {
		if room <= 0 {
			return nil, nil
		}
		c := *callers[i]
		c.Collect = true
		a, err := tx.Tree.Stat(&c, at)
		if err != nil {
			return nil, nil
		}
		keys := mayCache(tx, &c, files[i].GetCaller().GetSession(), false)
		if len(keys) == 0 {
			return nil, nil
		}
		room -= len(keys)
		return s.attr(a), keys
	}
	err := s.engine.Read(func(tx *engine.Tx) error {
		for i, f := range files {
			res := resp.Results[i]
			if callers[i] == nil {
				continue
			}
			if a, keys := look(tx, i, ref(f.GetAt())); a.GetInode() == res.GetInode() {
				res.Attr, res.Keys = a, keys
			}
			dir := ref(f.GetAt()).Dir()
			if seen[dir] {
				continue
			}
			seen[dir] = true
			if a, keys := look(tx, i, dir); a != nil {
				resp.Directories = append(resp.Directories, &pb.DirectoryLook{Attr: a, Keys: keys})
			}
		}
		return nil
	})
	if err == nil {
		err = s.role.Window()
	}
	if err == nil {
		return
	}
	// The files are made; of what this namenode saw since, it is not sure.
	resp.Directories = nil
	for _, res := range resp.Results {
		res.Attr, res.Keys = nil, nil
	}
}
