package bench

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fserror/wire"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// fanout is how many directories the files of a workload are spread over.
const fanout = 64

// each is paced with this run's workers and rate.
func (r *runner) each(ctx context.Context, n int, note string, op func(ctx context.Context, w, i int) error) (Row, error) {
	row, err := paced(ctx, r.cfg.Workers, n, r.cfg.Rate, op)
	row.Note = note
	return row, err
}

// health is what gRPC alone takes: the ceiling of all unary work.
func (r *runner) health(ctx context.Context) (Row, error) {
	var health []healthpb.HealthClient
	for _, c := range r.conns {
		health = append(health, healthpb.NewHealthClient(c))
	}
	check := func(ctx context.Context, w, _ int) error {
		_, err := health[w%len(health)].Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true))
		return wire.FromStatus(err)
	}
	if _, err := parallel(ctx, r.cfg.Workers, r.cfg.Workers*8, check); err != nil { // connects
		return Row{}, err
	}
	return r.each(ctx, 2*r.cfg.N, "bare gRPC health check, the ceiling", check)
}

func (r *runner) mkdirs(ctx context.Context) (Row, error) {
	base := r.dir + "/dirs"
	if err := r.fs.Mkdir(ctx, base, 0o755); err != nil {
		return Row{}, err
	}
	return r.each(ctx, r.cfg.N, "one call a directory", func(ctx context.Context, w, i int) error {
		a := r.actors[w]
		_, err := r.of(w).Mkdir(ctx, &pb.MkdirRequest{Call: a.call(), Caller: a.caller, At: pb.At(base + "/d" + strconv.Itoa(i))})
		return wire.FromStatus(err)
	})
}

// filePath is file i of the create workload, where it is now.
func (r *runner) filePath(i int) string {
	name := "/f"
	if r.renamed {
		name = "/g"
	}
	return r.dir + "/files/" + strconv.Itoa(i%fanout) + name + strconv.Itoa(i)
}

func (r *runner) create(ctx context.Context) (Row, error) {
	for i := range fanout {
		if err := r.fs.MkdirAll(ctx, r.dir+"/files/"+strconv.Itoa(i), 0o755); err != nil {
			return Row{}, err
		}
	}
	r.renamed = false
	row, err := r.each(ctx, r.cfg.N, "create and close in one call", func(ctx context.Context, w, i int) error {
		a := r.actors[w]
		_, err := r.of(w).Create(ctx, &pb.CreateRequest{Call: a.call(), Caller: a.caller, At: pb.At(r.filePath(i)), Close: true})
		return wire.FromStatus(err)
	})
	if err == nil {
		r.files = r.cfg.N
	}
	return row, err
}

// needFiles makes the files that a workload works on if create did not.
func (r *runner) needFiles(ctx context.Context) error {
	if r.files > 0 {
		return nil
	}
	_, err := r.create(ctx)
	return err
}

func (r *runner) stat(ctx context.Context) (Row, error) {
	if err := r.needFiles(ctx); err != nil {
		return Row{}, err
	}
	return r.each(ctx, 2*r.cfg.N, "attributes by path", func(ctx context.Context, w, i int) error {
		_, err := r.of(w).Stat(ctx, &pb.StatRequest{Caller: r.actors[w].caller, At: pb.At(r.filePath(i % r.files))})
		return wire.FromStatus(err)
	})
}

func (r *runner) open(ctx context.Context) (Row, error) {
	if err := r.needFiles(ctx); err != nil {
		return Row{}, err
	}
	return r.each(ctx, 2*r.cfg.N, "attributes, block list and tail", func(ctx context.Context, w, i int) error {
		_, err := r.of(w).GetFile(ctx, &pb.GetFileRequest{Caller: r.actors[w].caller, At: pb.Follow(r.filePath(i % r.files))})
		return wire.FromStatus(err)
	})
}

func (r *runner) list100(ctx context.Context) (Row, error) {
	dir := r.dir + "/list"
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	for i := range 100 {
		if err := r.fs.WriteFile(ctx, fmt.Sprintf("%s/f%03d", dir, i), nil); err != nil {
			return Row{}, err
		}
	}
	return r.each(ctx, r.cfg.N, "100 entries with attributes a call", func(ctx context.Context, w, _ int) error {
		resp, err := r.of(w).List(ctx, &pb.ListRequest{Caller: r.actors[w].caller, At: pb.Follow(dir), Limit: 100})
		if err == nil && len(resp.GetEntries()) != 100 {
			return fserror.New(fserror.Internal, "list", dir, "%d entries instead of 100", len(resp.GetEntries()))
		}
		return wire.FromStatus(err)
	})
}

func (r *runner) rename(ctx context.Context) (Row, error) {
	if err := r.needFiles(ctx); err != nil {
		return Row{}, err
	}
	row, err := r.each(ctx, r.files, "within one directory", func(ctx context.Context, w, i int) error {
		a, dir := r.actors[w], r.dir+"/files/"+strconv.Itoa(i%fanout)
		_, err := r.of(w).Rename(ctx, &pb.RenameRequest{
			Call: a.call(), Caller: a.caller, From: pb.At(dir + "/f" + strconv.Itoa(i)), To: pb.At(dir + "/g" + strconv.Itoa(i)),
		})
		return wire.FromStatus(err)
	})
	r.renamed = true
	return row, err
}

func (r *runner) remove(ctx context.Context) (Row, error) {
	if err := r.needFiles(ctx); err != nil {
		return Row{}, err
	}
	row, err := r.each(ctx, r.files, "one call a file", func(ctx context.Context, w, i int) error {
		a := r.actors[w]
		_, err := r.of(w).Delete(ctx, &pb.DeleteRequest{Call: a.call(), Caller: a.caller, At: pb.At(r.filePath(i))})
		return wire.FromStatus(err)
	})
	r.files, r.renamed = 0, false
	return row, err
}
