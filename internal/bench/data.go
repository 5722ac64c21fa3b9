package bench

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
)

// smallFile writes durable 1 KiB files: create, write, close by a Writer.
func (r *runner) smallFile(ctx context.Context) (Row, error) {
	dir := r.dir + "/small"
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	data := pattern(1 << 10)
	row, err := r.each(ctx, r.cfg.N/2, "1 KiB: create, write, close, durable", func(ctx context.Context, _, i int) error {
		w, err := r.fs.Create(ctx, dir+"/f"+strconv.Itoa(i))
		if err != nil {
			return err
		}
		if _, err := w.Write(data); err != nil {
			return errorsJoin(err, w.Abort())
		}
		return w.CloseContext(ctx)
	})
	row.Bytes = row.Ops << 10
	return row, err
}

// flush appends 100 bytes and flushes, again and again, by so many writers.
func (r *runner) flush(ctx context.Context, writers int) (Row, error) {
	dir := r.dir + "/flush" + strconv.Itoa(writers)
	if err := r.fs.Mkdir(ctx, dir, 0o755); err != nil {
		return Row{}, err
	}
	open := make([]*client.Writer, 0, writers)
	defer func() {
		for _, w := range open {
			_ = w.Abort() // the files are removed anyway
		}
	}()
	for i := range writers {
		w, err := r.fs.Create(ctx, dir+"/f"+strconv.Itoa(i))
		if err != nil {
			return Row{}, err
		}
		open = append(open, w)
	}
	n := max(writers, r.cfg.N/5)
	if writers > 1 {
		n = max(writers, r.cfg.N)
	}
	data := pattern(100)
	row, err := parallel(ctx, writers, n, func(ctx context.Context, w, _ int) error {
		if _, err := open[w].Write(data); err != nil {
			return err
		}
		return open[w].Flush(ctx)
	})
	row.Note = "100 B made durable, " + strconv.Itoa(writers) + " at once"
	row.Bytes = row.Ops * 100
	return row, err
}

// fdatasync is what the disk alone takes for the same.
func (r *runner) fdatasync(ctx context.Context) (row Row, err error) {
	f, err := os.CreateTemp(r.cfg.DataDir, "leasefs-bench-")
	if err != nil {
		return Row{}, fserror.Wrap(fserror.Internal, "", r.cfg.DataDir, err)
	}
	defer func() {
		err = errors.Join(err, f.Close(), os.Remove(f.Name()))
	}()
	data := pattern(100)
	row, err = parallel(ctx, 1, max(100, r.cfg.N/20), func(context.Context, int, int) error {
		if _, err := f.Write(data); err != nil {
			return err
		}
		return unix.Fdatasync(int(f.Fd()))
	})
	row.Note = "100 B appended and synced on " + r.cfg.DataDir + ", no leasefs"
	row.Bytes = row.Ops * 100
	return row, err
}

// seqWrite writes one large file, durable when it is timed.
func (r *runner) seqWrite(ctx context.Context) (Row, error) {
	buf := pattern(1 << 20)
	w, err := r.fs.Create(ctx, r.dir+"/seq")
	if err != nil {
		return Row{}, err
	}
	began := time.Now()
	for range r.cfg.MB {
		if err := ctx.Err(); err != nil {
			return Row{}, errorsJoin(err, w.Abort())
		}
		if _, err := w.Write(buf); err != nil {
			return Row{}, errorsJoin(err, w.Abort())
		}
	}
	if err := w.CloseContext(ctx); err != nil {
		return Row{}, err
	}
	r.seqDone = true
	return Row{Ops: int64(r.cfg.MB), Seconds: time.Since(began).Seconds(), Bytes: int64(r.cfg.MB) << 20, Note: "one writer, durable at its close; an operation is 1 MiB"}, nil
}

// seqRead reads it back, checksums verified.
func (r *runner) seqRead(ctx context.Context) (Row, error) {
	if !r.seqDone {
		if _, err := r.seqWrite(ctx); err != nil {
			return Row{}, err
		}
	}
	began := time.Now()
	f, err := r.fs.Open(ctx, r.dir+"/seq")
	if err != nil {
		return Row{}, err
	}
	n, err := io.Copy(io.Discard, struct{ io.Reader }{f})
	if err = errorsJoin(err, f.Close()); err != nil {
		return Row{}, err
	}
	if want := int64(r.cfg.MB) << 20; n != want {
		return Row{}, fserror.New(fserror.Damaged, "", r.dir+"/seq", "%d bytes were read of %d written", n, want)
	}
	return Row{Ops: n >> 20, Seconds: time.Since(began).Seconds(), Bytes: n, Note: "one reader, checksums verified; an operation is 1 MiB"}, nil
}

const (
	bulkBatch   = 512 // files of 100 B in one WriteFiles
	bulkWorkers = 8
)

// bulkPut makes many small files, many of them a call.
func (r *runner) bulkPut(ctx context.Context) (Row, error) {
	batches := max(1, 10*r.cfg.N/bulkBatch)
	for i := range batches {
		if err := r.fs.MkdirAll(ctx, r.dir+"/bulk/"+strconv.Itoa(i), 0o755); err != nil {
			return Row{}, err
		}
	}
	data := pattern(100)
	row, err := parallel(ctx, bulkWorkers, batches, func(ctx context.Context, _, i int) error {
		files := make([]client.FileData, bulkBatch)
		for n := range files {
			files[n] = client.FileData{Path: r.dir + "/bulk/" + strconv.Itoa(i) + "/f" + strconv.Itoa(n), Data: data}
		}
		errs, err := r.fs.WriteFiles(ctx, files)
		if err != nil {
			return err
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return row, err
	}
	r.bulkFiles = batches * bulkBatch
	row.Ops, row.Bytes = int64(r.bulkFiles), int64(r.bulkFiles)*100
	row.Note = "files of 100 B, " + strconv.Itoa(bulkBatch) + " a call; times are of a call"
	return row, nil
}

// bulkRemove removes them with their directories in one call.
func (r *runner) bulkRemove(ctx context.Context) (Row, error) {
	if r.bulkFiles == 0 {
		if _, err := r.bulkPut(ctx); err != nil {
			return Row{}, err
		}
	}
	began := time.Now()
	if err := r.fs.RemoveAll(ctx, r.dir+"/bulk"); err != nil {
		return Row{}, err
	}
	row := Row{Ops: int64(r.bulkFiles), Seconds: time.Since(began).Seconds(), Note: "files of one tree, removed by one call"}
	r.bulkFiles = 0
	return row, nil
}

// pattern is n bytes that do not compress to nothing.
func pattern(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}
