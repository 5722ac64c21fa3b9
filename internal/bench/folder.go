package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// FolderConfig says what to measure in a folder, of whatever file system: a
// mount of leasefs, of a peer, or a disk. Zero values stand for defaults.
type FolderConfig struct {
	Folder string // where it works, in a new folder that it removes
	// Other is the same folder through another mount, for poll; empty: Folder.
	Other string
	Run   []string // names of workloads; empty: all
	N     int      // files of files1 and files16, appends; 2,000
	MB    int      // MiB of write and read; 512
	// Step, if set, is called before each workload with its number.
	Step func(name string, number int)
	// Worker is a command line that calls FolderWorker: the files are made by
	// processes of their own.
	Worker []string
}

// folderWorkload is one row's work.
type folderWorkload struct {
	name string
	run  func(*folder, context.Context) (Row, error)
}

// folderWorkloads run in this order.
var folderWorkloads = []folderWorkload{
	{"files1", func(f *folder, ctx context.Context) (Row, error) { return f.files(ctx, 1) }},
	{"files16", func(f *folder, ctx context.Context) (Row, error) { return f.files(ctx, 16) }},
	{"append", (*folder).appends},
	{"write", (*folder).write},
	{"read", (*folder).read},
	{"poll", (*folder).poll},
	{"visible", (*folder).visible},
	{"stale", (*folder).stale},
}

// FolderNames are the workloads that FolderConfig.Run may list, in the order of
// their runs.
func FolderNames() []string {
	names := make([]string, len(folderWorkloads))
	for i, w := range folderWorkloads {
		names[i] = w.name
	}
	return names
}

// Chosen are the workloads that c asks for, in the order of their runs; an
// unknown name is an error.
func (c FolderConfig) Chosen() ([]string, error) {
	return choose(FolderNames(), c.Run)
}

// choose takes those of all that are wanted, or all.
func choose(all, wanted []string) ([]string, error) {
	for _, name := range wanted {
		if !slices.Contains(all, name) {
			return nil, fserror.New(fserror.InvalidArgument, "bench", "", "there is no workload %q; known are %s", name, strings.Join(all, ", "))
		}
	}
	if len(wanted) == 0 {
		return all, nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !slices.Contains(wanted, name) }), nil
}

// folder is a running measurement.
type folder struct {
	cfg   FolderConfig
	dir   string // below cfg.Folder
	other string // the same below cfg.Other
	seen  *polled
}

// RunFolder measures the workloads one after another and hands each row out as
// soon as it is there. It removes what it made, also when ctx ends.
func RunFolder(ctx context.Context, cfg FolderConfig, emit func(Row) error) (err error) {
	names, err := cfg.Chosen()
	if err != nil {
		return err
	}
	for v, d := range map[*int]int{&cfg.N: 2000, &cfg.MB: 512} {
		if *v <= 0 {
			*v = d
		}
	}
	if cfg.Other == "" {
		cfg.Other = cfg.Folder
	}
	f := &folder{cfg: cfg}
	if f.dir, err = os.MkdirTemp(cfg.Folder, "bench-"); err != nil {
		return fserror.Wrap(fserror.InvalidArgument, "bench", cfg.Folder, err)
	}
	f.other = filepath.Join(cfg.Other, filepath.Base(f.dir))
	defer func() {
		if rerr := os.RemoveAll(f.dir); err == nil {
			err = rerr
		}
	}()
	for i, name := range names {
		if cfg.Step != nil {
			cfg.Step(name, i)
		}
		w := folderWorkloads[slices.IndexFunc(folderWorkloads, func(w folderWorkload) bool { return w.name == name })]
		row, err := w.run(f, ctx)
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("bench %s: %w", name, err)
		}
		row.Name = name
		if err := emit(row); err != nil {
			return err
		}
	}
	return nil
}

// appends appends 100 bytes with fsync, again and again, to an open file.
func (f *folder) appends(ctx context.Context) (row Row, err error) {
	w, err := os.OpenFile(filepath.Join(f.dir, "append"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return Row{}, err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	data := pattern(100)
	row, err = parallel(ctx, 1, f.cfg.N, func(context.Context, int, int) error {
		if _, err := w.Write(data); err != nil {
			return err
		}
		return w.Sync()
	})
	row.Bytes = row.Ops * 100
	row.Note = "100 B appended and fsynced"
	return row, err
}

// seq is the file of write and read.
func (f *folder) seq() string { return filepath.Join(f.dir, "seq") }

// write writes one large file, with fsync.
func (f *folder) write(ctx context.Context) (Row, error) {
	buf := pattern(1 << 20)
	began := time.Now()
	w, err := os.Create(f.seq())
	if err != nil {
		return Row{}, err
	}
	for range f.cfg.MB {
		if err == nil {
			err = ctx.Err()
		}
		if err == nil {
			_, err = w.Write(buf)
		}
	}
	if err == nil {
		err = w.Sync()
	}
	err = errors.Join(err, w.Close())
	return Row{Ops: int64(f.cfg.MB), Seconds: time.Since(began).Seconds(), Bytes: int64(f.cfg.MB) << 20, Note: "one file, with fsync; an operation is 1 MiB"}, err
}

// read reads it, out of no page cache of this file: it was just written with
// fsync, and what the mount may still have of it is dropped first.
func (f *folder) read(ctx context.Context) (Row, error) {
	if _, err := os.Stat(f.seq()); err != nil {
		if _, err := f.write(ctx); err != nil {
			return Row{}, err
		}
	}
	r, err := os.Open(f.seq())
	if err != nil {
		return Row{}, err
	}
	if err := dropPages(r); err != nil {
		return Row{}, errors.Join(err, r.Close())
	}
	began := time.Now()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, make([]byte, 1<<20))
	row := Row{Ops: n >> 20, Seconds: time.Since(began).Seconds(), Bytes: n, Note: "one file, page cache dropped before; an operation is 1 MiB"}
	if want := int64(f.cfg.MB) << 20; err == nil && n != want {
		err = fserror.New(fserror.Damaged, "", f.seq(), "%d bytes were read of %d written", n, want)
	}
	return row, errors.Join(err, r.Close())
}
