package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	"github.com/leasefs/leasefs/internal/lowlevel/door"
	"github.com/leasefs/leasefs/internal/namecall"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

const (
	// maxBatch is how many files one call makes.
	maxBatch = 1000
	// maxBatchBytes is how much one call carries.
	maxBatchBytes = 1 << 20
	// batchesAhead is how many such calls are under way at once.
	batchesAhead = 4
	// perFile is what a file takes in a message besides path and data.
	perFile = 128
)

// WriteFiles makes many whole files, each as WriteFile does, in as few calls
// as fit (at most 1,000 files and one message each, a few under way at once).
// Files of one call of WriteFiles are made in no particular order. The first
// result has an error (or nil) for each file; the second is not nil if the
// rest was not even tried, those files then have it too.
func (f *FS) WriteFiles(ctx context.Context, files []FileData) ([]error, error) {
	b := &bulk{fs: f, files: files, errs: make([]error, len(files))}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(batchesAhead)
	var batch []int
	size := 0
	send := func() {
		if len(batch) == 0 {
			return
		}
		list := batch
		batch, size = nil, 0
		g.Go(func() error { return b.write(gctx, list) })
	}
	whole, most := f.Info().MaxWholeFile, min(maxPiece(f.session.Welcome()), maxBatchBytes)
	for i := range files {
		n := len(files[i].Path) + len(files[i].Data) + perFile
		if int64(len(files[i].Data)) > whole || n > most {
			g.Go(func() error {
				b.set(i, f.WriteFile(gctx, files[i].Path, files[i].Data, files[i].Options...))
				return stops(b.errs[i])
			})
			continue
		}
		if len(batch) == maxBatch || size+n > most {
			send()
		}
		batch = append(batch, i)
		size += n
	}
	send()
	err := g.Wait()
	if err != nil && ctx.Err() != nil {
		err = fserror.Ended(ctx, "create", "")
	}
	return b.errs, err
}

type bulk struct {
	fs    *FS
	files []FileData

	mu   sync.Mutex
	errs []error
}

func (b *bulk) set(i int, err error) {
	b.mu.Lock()
	b.errs[i] = err
	b.mu.Unlock()
}

// stops returns errors after which no other file has a chance.
func stops(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fserror.Unavailable), errors.Is(err, fserror.Canceled), errors.Is(err, fserror.Deadline), errors.Is(err, fserror.Closed):
		return err
	}
	return nil
}

// write makes the files of one batch. What the namenode cannot take now is
// sent again, under the same call ids, until the FS's Timeout.
func (b *bulk) write(ctx context.Context, list []int) error {
	deadline := time.Now().Add(b.fs.cfg.Timeout)
	req := new(pb.CreateManyRequest)
	var which []int
	for _, i := range list {
		file := &b.files[i]
		path, err := clean("create", file.Path)
		if err != nil {
			b.set(i, err)
			continue
		}
		o := gather(file.Options)
		r := b.fs.createRequest(b.fs.caller, o.at(ctx, door.At(path)), &o)
		r.Data, r.DataCrc32C, r.Close = file.Data, blockstore.CRC(file.Data), true
		req.Files = append(req.Files, r)
		which = append(which, i)
	}
	ids, err := b.fs.ids.BeginMany(ctx, len(which))
	if err != nil {
		err := fserror.Ended(ctx, "create", "")
		for _, i := range which {
			b.set(i, err)
		}
		return err
	}
	for k, id := range ids {
		req.Files[k].Call = id
	}
	defer func() {
		for _, r := range req.Files { // results ended the calls of the others
			b.fs.ids.End(r.Call)
		}
	}()
	w := b.fs.nn.Waits("create", "")
	for n := 0; len(which) > 0; n++ {
		resp := new(pb.CreateManyResponse)
		c := namecall.Call{Op: "create", Path: req.Files[0].GetAt().GetPath(), Mutates: true}
		w.For(c.Path)
		err := b.fs.nn.Do(ctx, &c, pb.Namenode_CreateMany_FullMethodName, req, resp)
		if err == nil && len(resp.GetResults()) != len(which) {
			err = fserror.New(fserror.Internal, "create", c.Path, "the namenode answered for %d of %d files", len(resp.GetResults()), len(which))
		}
		if err != nil {
			for k, i := range which {
				e := fserror.With(err, "create", "")
				var own *fserror.Error
				if errors.As(e, &own) {
					own.Path = req.Files[k].GetAt().GetPath()
				}
				b.set(i, e)
			}
			return stops(err)
		}
		var why *fserror.Error
		which, req.Files, why = b.results(ctx, req.Files, which, resp, time.Now().Add(namecall.Backoff(n)).Before(deadline))
		if len(which) > 0 && !w.Again(ctx, namecall.Backoff(n), why, true) {
			err := fserror.Ended(ctx, "create", "")
			for _, i := range which {
				b.set(i, err)
			}
			return err
		}
	}
	return nil
}

// results notes what became of each file, ends its call, and returns those to
// send again, and why.
func (b *bulk) results(ctx context.Context, reqs []*pb.CreateRequest, which []int, resp *pb.CreateManyResponse, again bool) ([]int, []*pb.CreateRequest, *fserror.Error) {
	var rest, noTails []int
	var restReqs []*pb.CreateRequest
	var why *fserror.Error
	for k, res := range resp.GetResults() {
		i := which[k]
		var err error
		if res.GetError() != nil {
			e := wire.FromDetail(res.GetError())
			switch {
			case e.Kind == fserror.Retry && e.Reason == namecall.TailBudget:
				noTails = append(noTails, i)
			case again && ctx.Err() == nil && (e.Kind == fserror.Retry || e.Kind == fserror.NotActive || e.Kind == fserror.Unavailable):
				rest = append(rest, i)
				restReqs, why = append(restReqs, reqs[k]), e
				continue
			}
			err = fserror.With(e, "create", reqs[k].GetAt().GetPath())
		}
		b.set(i, err)
		b.fs.ids.End(reqs[k].Call)
	}
	// No room in the namenode's memory: their bytes become blocks.
	for _, i := range noTails {
		b.set(i, b.fs.WriteFile(ctx, b.files[i].Path, b.files[i].Data, b.files[i].Options...))
	}
	return rest, restReqs, why
}
