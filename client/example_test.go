package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fserror"
)

// Append to a log, and know when it is not ours any more.
func ExampleFS_Append() {
	ctx := context.Background()
	fsys, err := client.New(ctx, client.Config{Namenodes: []string{"127.0.0.1:8020"}, Client: "ingest-3"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = fsys.Close() }()

	w, err := fsys.Append(ctx, "/logs/a", client.WithCreate(), client.WithParents(), client.WithWait(time.Minute))
	var held *fserror.Error
	if errors.As(err, &held) && held.Kind == fserror.Held {
		fmt.Println("written by", held.Holder.Client, "and to be had in", held.TakeableIn)
		return
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for range 3 {
		if _, err := fmt.Fprintln(w, "a line"); err != nil {
			break
		}
		if err := w.Flush(ctx); errors.Is(err, fserror.LeaseLost) {
			fmt.Println("lost:", context.Cause(w.Context()))
			break
		}
	}
	if err := w.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// A writer that resumes after a crash appends each record exactly once.
func ExampleWithExpectedLength() {
	ctx := context.Background()
	var fsys *client.FS  // from New
	var checkpoint int64 // where the last run was sure to be

	w, err := fsys.Append(ctx, "/records", client.WithExpectedLength(checkpoint))
	var e *fserror.Error
	if errors.As(err, &e) && e.Kind == fserror.NotAtEnd {
		fmt.Println("the file already has", e.Length, "bytes: skip those")
		return
	}
	if err != nil {
		return
	}
	defer func() { _ = w.Close() }()
}

// Follow a file that another process writes, as tail -f does.
func ExampleReader_WaitBeyond() {
	ctx := context.Background()
	var fsys *client.FS // from New

	r, err := fsys.Open(ctx, "/logs/a")
	if err != nil {
		return
	}
	defer func() { _ = r.Close() }()
	var seen int64
	for open := true; open; {
		n, err := io.Copy(os.Stdout, r)
		if err != nil {
			return
		}
		seen += n
		if _, open, err = r.WaitBeyond(ctx, seen); err != nil {
			return
		}
	}
}

// Many small files in few calls.
func ExampleFS_WriteFiles() {
	ctx := context.Background()
	var fsys *client.FS // from New

	files := []client.FileData{
		{Path: "/in/1", Data: []byte("one")},
		{Path: "/in/2", Data: []byte("two"), Options: []client.OpenOption{client.WithOverwrite()}},
	}
	errs, err := fsys.WriteFiles(ctx, files)
	if err != nil {
		return // the rest was not tried
	}
	for i, err := range errs {
		if err != nil {
			fmt.Println(files[i].Path, err)
		}
	}
}

// What takes an fs.FS takes a leasefs directory.
func ExampleFS_IOFS() {
	ctx := context.Background()
	var fsys *client.FS // from New

	_ = fs.WalkDir(fsys.IOFS(ctx, "/logs"), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".gz") {
			fmt.Println(path)
		}
		return err
	})
}
