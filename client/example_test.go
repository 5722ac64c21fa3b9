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
)

// Append to a log, and know when it is not ours any more.
func ExampleFS_Append() {
	ctx := context.Background()
	address, stop := startNamenode() // leasefs namenode, as a rule on another machine
	defer stop()
	fsys, err := client.New(ctx, client.Config{Namenodes: []string{address}, Client: "ingest-3"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = fsys.Close() }()

	w, err := fsys.Append(ctx, "/logs/a", client.WithCreate(), client.WithParents(), client.WithWait(time.Minute))
	var held *client.Error
	if errors.As(err, &held) && held.Kind == client.ErrHeld {
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
		if err := w.Flush(ctx); errors.Is(err, client.ErrLeaseLost) {
			fmt.Println("lost:", context.Cause(w.Context()))
			break
		}
	}
	if err := w.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	info, err := fsys.Stat(ctx, "/logs/a")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(info.Length, "bytes, open:", info.Open != nil)
	// Output: 21 bytes, open: false
}

// A writer that resumes after a crash appends each record exactly once.
func ExampleWithExpectedLength() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()
	if err := fsys.WriteFile(ctx, "/records", []byte("one, two, ")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	checkpoint := int64(len("one, ")) // where the last run was sure to be
	records := "one, two, three, "

	w, err := fsys.Append(ctx, "/records", client.WithExpectedLength(checkpoint))
	var e *client.Error
	if errors.As(err, &e) && e.Kind == client.ErrNotAtEnd {
		fmt.Println("the file already has", e.Length, "bytes: skip those")
		checkpoint = e.Length
		w, err = fsys.Append(ctx, "/records", client.WithExpectedLength(checkpoint))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if _, err := io.WriteString(w, records[checkpoint:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	if err := w.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}

	all, err := fsys.ReadFile(ctx, "/records")
	fmt.Println(string(all), err)
	// Output:
	// the file already has 10 bytes: skip those
	// one, two, three,  <nil>
}

// Follow a file that another process writes, as tail -f does.
func ExampleReader_WaitBeyond() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()
	w, err := fsys.Create(ctx, "/a")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	go func() { // in another process, as a rule
		for i := range 3 {
			_, _ = fmt.Fprintln(w, "line", i)
			_ = w.Flush(ctx)
		}
		_ = w.Close()
	}()

	r, err := fsys.Open(ctx, "/a")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer func() { _ = r.Close() }()
	var seen int64
	for open := true; open; {
		n, err := io.Copy(os.Stdout, r)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		seen += n
		if _, open, err = r.WaitBeyond(ctx, seen); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
	if _, err := io.Copy(os.Stdout, r); err != nil { // what came with its end
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// line 0
	// line 1
	// line 2
}

// Many small files in few calls.
func ExampleFS_WriteFiles() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()
	if err := fsys.MkdirAll(ctx, "/in", 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	if err := fsys.WriteFile(ctx, "/in/1", []byte("an old one")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}

	files := []client.FileData{
		{Path: "/in/1", Data: []byte("one")},
		{Path: "/in/2", Data: []byte("two"), Options: []client.OpenOption{client.WithOverwrite()}},
	}
	errs, err := fsys.WriteFiles(ctx, files)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return // the rest was not tried
	}
	for i, err := range errs {
		switch {
		case errors.Is(err, fs.ErrExist):
			fmt.Println(files[i].Path, "is there already")
		case err != nil:
			fmt.Println(files[i].Path, err)
		default:
			fmt.Println(files[i].Path, "is written")
		}
	}
	// Output:
	// /in/1 is there already
	// /in/2 is written
}

// What takes an fs.FS takes a leasefs directory.
func ExampleFS_IOFS() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()
	for _, path := range []string{"/logs/b/2.gz", "/logs/1.gz", "/logs/3.txt"} {
		if err := fsys.WriteFile(ctx, path, nil, client.WithParents()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}

	err := fs.WalkDir(fsys.IOFS(ctx, "/logs"), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".gz") {
			fmt.Println(path)
		}
		return err
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// 1.gz
	// b/2.gz
}

// Reload a configuration when it changes.
func ExampleFS_Watch() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()
	if err := fsys.WriteFile(ctx, "/etc/app.conf", []byte("old"), client.WithParents()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}

	w, err := fsys.Watch(ctx, "/etc/app.conf", client.WatchOptions{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	defer w.Close()
	for {
		conf, err := fsys.ReadFile(ctx, "/etc/app.conf") // what changes after this is told
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		fmt.Printf("%s\n", conf)
		if string(conf) == "new" {
			return
		}
		go func() { // in another process, as a rule
			_ = fsys.WriteFile(ctx, "/etc/app.conf", []byte("new"), client.WithOverwrite())
		}()
		for changed := false; !changed; {
			events, err := w.Next()
			if err != nil { // of kind TooOld: watch again
				fmt.Fprintln(os.Stderr, err)
				return
			}
			changed = len(events) > 0 // now and then there are none
		}
	}
	// Output:
	// old
	// new
}

// Be one of the workers that are alive: the file goes when this process does.
func ExampleLeases_KeepAlive() {
	ctx := context.Background()
	fsys, stop := connect() // client.New
	defer stop()

	lease, err := fsys.Leases().Grant(ctx, 10*time.Second, 0)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	kept, err := fsys.Leases().KeepAlive(ctx, lease.ID)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	err = fsys.WriteFile(ctx, "/workers/w7", []byte("10.0.0.7:80"), client.WithParents(), client.WithLease(lease.ID))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	// Work, until kept.Context ends.
	fmt.Println("alive:", kept.Context().Err() == nil)

	if err := fsys.Leases().Revoke(ctx, lease.ID); err != nil { // without it, after 10 s
		fmt.Fprintln(os.Stderr, err)
		return
	}
	<-kept.Context().Done()
	_, err = fsys.Stat(ctx, "/workers/w7")
	fmt.Println("gone:", errors.Is(err, fs.ErrNotExist))
	// Output:
	// alive: true
	// gone: true
}

// Elect a leader: who holds the lock leads, and fences what it changes.
func ExampleFS_Lock() {
	ctx := context.Background()
	fsys, stop := connect() // client.New, with a Config.TTL for how soon another leads
	defer stop()

	lock, err := fsys.Lock(ctx, "/locks/leader", client.LockOptions{Wait: time.Hour})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fence := lock.Token() // greater with each leader: what it changes refuses a smaller one
	select {
	case <-lock.Jeopardy(): // or Context: lost already
		fmt.Println("stop leading")
	default:
		fmt.Println("lead:", fence > 0)
	}
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// lead: true
	// <nil>
}
