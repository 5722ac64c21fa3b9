package main

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
)

// copyFlags are those that put and get share.
func copyFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "copy trees, with links, modes and times"},
		&cli.BoolFlag{Name: "overwrite", Usage: "replace files that exist"},
		&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing parent directories of the target"},
		&cli.BoolFlag{Name: "xattrs", Aliases: []string{"X"}, Usage: "keep extended attributes user.*, of directories that are made too"},
		&cli.IntFlag{Name: "workers", Usage: "copy `N` files at once", Value: 8},
	}
}

func putCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "put",
		Usage:     "copy local files into the namespace",
		UsageText: "leasefs put [-r] [options] LOCAL PATH\n\nExample:\n  leasefs put -r ./site /www/site\n  leasefs put -rX ./set-7 /data/set-7",
		Description: "Copies a file, or a tree with -r. If PATH is a directory the copy goes into it. Each file\n" +
			"is there whole or not at all: large ones are written under a temporary name and renamed.\n" +
			"Existing directories are merged into; an existing file is an error without --overwrite.\n" +
			"The first error ends the copy; files copied before it stay.",
		Flags: append(copyFlags(),
			&cli.BoolFlag{Name: "skip-special", Usage: "leave sockets, pipes and devices out instead of failing"},
			&cli.StringFlag{Name: "lease", Usage: "delete the files (not directories and links) when the granted lease `ID|NAME` ends"}),
		Action: p.action(operands{min: 2, max: 2, names: "LOCAL PATH", local: true}, put),
	}
}

func getCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "get",
		Usage:     "copy files out of the namespace",
		UsageText: "leasefs get [-r] [options] PATH LOCAL\n\nExample:\n  leasefs get -r /www/site /srv/www\n  leasefs get -rX /data/set-7 .",
		Description: "Copies a file, or a tree with -r, and verifies the checksums of all that it reads. If LOCAL\n" +
			"is a directory the copy goes into it. Each file is written under a temporary name, synced\n" +
			"and renamed. A file open for write is copied as far as it was flushed. With -X an attribute\n" +
			"that the local file system cannot keep is an error.",
		Flags:  copyFlags(),
		Action: p.action(operands{min: 2, max: 2, names: "PATH LOCAL", local: true}, get),
	}
}

func put(e *invocation) error {
	remote, err := e.path(e.args[1])
	if err != nil {
		return err
	}
	lease, err := e.leaseFlag("lease")
	if err != nil {
		return err
	}
	return e.transfer(func(ctx context.Context, opts transfer.Options) (transfer.Result, error) {
		opts.SkipSpecial = e.flags.Bool("skip-special")
		if lease != "" {
			var err error
			if opts.Lease, err = e.fs.Leases().Find(ctx, lease); err != nil {
				return transfer.Result{}, err
			}
		}
		return transfer.Put(ctx, e.fs, e.args[0], remote, opts)
	})
}

func get(e *invocation) error {
	remote, err := e.path(e.args[0])
	if err != nil {
		return err
	}
	return e.transfer(func(ctx context.Context, opts transfer.Options) (transfer.Result, error) {
		return transfer.Get(ctx, e.fs, remote, e.args[1], opts)
	})
}

// transfer connects, copies with a progress bar, and prints the summary.
func (e *invocation) transfer(run func(context.Context, transfer.Options) (transfer.Result, error)) error {
	workers := e.flags.Int("workers")
	if workers < 1 || workers > 256 {
		return argv.Usagef(e.op, "--workers: %d is not within 1 and 256", workers)
	}
	err := e.connect(func(cfg *client.Config) {
		cfg.Timeout = cmp.Or(cfg.Timeout, copyTimeout)
	})
	if err != nil {
		return err
	}
	bar := e.NewBar(e.op)
	opts := transfer.Options{
		Recursive: e.flags.Bool("recursive"), Overwrite: e.flags.Bool("overwrite"), Parents: e.flags.Bool("parents"), Xattrs: e.flags.Bool("xattrs"),
		Workers: workers, Progress: bar.Bytes,
	}
	start := time.Now()
	res, err := run(e.ctx, opts)
	bar.Finish()
	if cerr := e.fs.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		err = e.fail(err, "")
		if res.Files > 0 && !screen.ByInterrupt(err) {
			err = fmt.Errorf("%w (%s copied before it)", err, screen.Plural(uint64(res.Files), "file was", "files were"))
		}
		return err
	}
	return e.copied(res, time.Since(start))
}

func (e *invocation) copied(res transfer.Result, took time.Duration) error {
	skipped := ""
	if res.Skipped > 0 {
		skipped = fmt.Sprintf(", %d skipped", res.Skipped)
	}
	return e.Summary(map[string]any{
		"files": res.Files, "directories": res.Directories, "symlinks": res.Symlinks, "skipped": res.Skipped,
		"bytes": res.Bytes, "seconds": took.Seconds(),
	}, "%s, %d bytes, %.2f s%s\n", screen.Plural(uint64(res.Files), "file", "files"), res.Bytes, took.Seconds(), skipped)
}

func cpCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "cp",
		Usage:     "copy files within the namespace",
		UsageText: "leasefs cp [--overwrite] FROM... TO\n\nExample:\n  leasefs cp /conf/a /conf/a.old",
		Description: "Copies FROM to TO, or each FROM into the directory TO, through this machine. Each copy is there\n" +
			"whole or not at all. Files of this machine are copied by put and get, trees too.",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "overwrite", Usage: "replace files that exist"}},
		Action: p.connected(operands{min: 2, max: -1, names: "FROM and TO"}, func(e *invocation) error {
			to := e.args[len(e.args)-1]
			e.args = e.args[:len(e.args)-1]
			if err := argv.DistinctNames(e.op, e.args); err != nil {
				return err
			}
			if len(e.args) > 1 {
				if info, err := e.fs.Stat(e.ctx, to); err != nil || !info.IsDir() {
					return fserror.New(fserror.NotDirectory, e.op, to, "is not a directory, but several paths were given to copy there")
				}
			}
			return e.each(func(from string) error {
				return e.fail(transfer.Copy(e.ctx, e.fs, from, to, e.flags.Bool("overwrite")), from)
			})
		}),
	}
}
