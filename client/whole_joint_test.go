package client_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
	"github.com/leasefs/leasefs/test/env"
)

// Many goroutines make files of one session at once: more than the namenode
// keeps unacknowledged results of.
func TestWriteFilesOfManyGoroutines(t *testing.T) {
	t.Parallel()
	f, wire := env.Start(t).Wired(t, func(c *client.Config) { c.Timeout = client.MaxTimeout })
	goroutines := 32
	if testing.Short() { // with many goroutines, each event costs the race detector much
		goroutines = 4
	}
	each := tables.MaxUnacked/goroutines + 64
	// One call takes long.
	var sent atomic.Int32
	wire.Set(func(method string, _ any, send func() error) error {
		if method == "Create" && sent.Add(1) == 1 {
			<-time.After(500 * time.Millisecond)
		}
		return send()
	})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			files := make([]client.FileData, each)
			for i := range files {
				files[i] = client.FileData{Path: fmt.Sprintf("/%d/%d", g, i), Data: []byte("x"), Options: []client.OpenOption{client.WithParents()}}
			}
			errs, err := f.WriteFiles(t.Context(), files)
			if err := errors.Join(append(errs, err)...); err != nil {
				t.Errorf("%.500v", err)
			}
		})
	}
	wg.Wait()
	s, err := f.Summary(t.Context(), "/")
	if err != nil || s.Files != uint64(goroutines*each) { //nolint:gosec // a count
		t.Fatalf("%d files, %v", s.Files, err)
	}
}

// Who may append and not read can append more than a tail.
func TestAppendWithoutReadPermission(t *testing.T) {
	n := env.Start(t)
	root := n.Client(t)
	ann := n.Client(t, func(c *client.Config) { c.User, c.BlockSize = "ann", 64<<10 })
	must(t, root.WriteFile(t.Context(), "/f", []byte("tail,"), client.WithMode(0o622)))
	w, err := ann.Append(t.Context(), "/f")
	must(t, err)
	more := bytes.Repeat([]byte("more"), 50_000)
	_, err = w.Write(more)
	must(t, err)
	must(t, w.Close())
	got, err := root.ReadFile(t.Context(), "/f")
	if err != nil || !bytes.Equal(got, append([]byte("tail,"), more...)) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	if _, err := ann.ReadFile(t.Context(), "/f"); !errors.Is(err, fserror.Permission) {
		t.Errorf("reading it: %v", err)
	}
}

// Where a large file goes, and what it does not replace, is as for a small one.
func TestWhereWholeFilesGo(t *testing.T) {
	n := env.Start(t)
	f, other := n.Client(t), n.Client(t)
	ctx := t.Context()
	for name, data := range map[string][]byte{"small": []byte("x"), "large": bytes.Repeat([]byte("x"), 300_000)} {
		dir := "/" + name
		must(t, f.Mkdir(ctx, dir, 0o755))
		must(t, f.WriteFile(ctx, dir+"/old", []byte("old")))
		must(t, f.Symlink(ctx, "old", dir+"/link"))
		w, err := other.Create(ctx, dir+"/held")
		must(t, err)
		for _, tc := range []struct {
			path string
			opts []client.OpenOption
			want error
		}{
			{"/old", nil, fserror.Exists},
			{"/link", nil, fserror.Exists},
			{"/held", nil, fserror.Held},
			{"/held", []client.OpenOption{client.WithOverwrite()}, fserror.Held},
			{"", nil, fserror.Exists},
			{"", []client.OpenOption{client.WithOverwrite()}, fserror.IsDirectory},
			{"/no/dir", nil, fserror.NotFound},
			{"/new/dir/f", []client.OpenOption{client.WithParents()}, nil},
			{"/link", []client.OpenOption{client.WithOverwrite()}, nil},
			{"/held", []client.OpenOption{client.WithSteal()}, nil},
		} {
			err := f.WriteFile(ctx, dir+tc.path, data, tc.opts...)
			if !errors.Is(err, tc.want) || tc.want == nil && err != nil {
				t.Errorf("%s%s: %v, want %v", dir, tc.path, err, tc.want)
			}
		}
		if got, err := f.ReadFile(ctx, dir+"/old"); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: what the link points to has %d bytes, %v", name, len(got), err)
		}
		if err := w.Close(); !errors.Is(err, fserror.LeaseLost) {
			t.Errorf("%s: who was stolen from: %v", name, err)
		}
	}
	if s, err := f.Summary(ctx, "/"); err != nil || s.Files != 6 {
		t.Errorf("%d files, %v", s.Files, err)
	}
}

// Without room for tails small files become blocks, whole all the same.
func TestWriteFilesWithoutRoomInTails(t *testing.T) {
	n := env.Start(t, func(c *namenode.Config) { c.TailBudget = 1 })
	f := n.Client(t)
	files := make([]client.FileData, 20)
	for i := range files {
		files[i] = client.FileData{Path: fmt.Sprint("/", i), Data: bytes.Repeat([]byte{byte(i)}, 100+i)}
	}
	errs, err := f.WriteFiles(t.Context(), files)
	must(t, errors.Join(append(errs, err)...))
	for _, file := range files {
		if got, err := f.ReadFile(t.Context(), file.Path); err != nil || !bytes.Equal(got, file.Data) {
			t.Errorf("%s: %d bytes, %v", file.Path, len(got), err)
		}
	}
	if s, err := f.Summary(t.Context(), "/"); err != nil || s.Files != 20 {
		t.Errorf("%d files, %v", s.Files, err)
	}
}

// Each error of WriteFiles is about its own file, whatever another's was.
func TestWriteFilesNamesEachFile(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	f := n.Client(t, func(c *client.Config) { c.Timeout = 2 * time.Second })
	n.Stop(t)
	files := make([]client.FileData, 300)
	for i := range files {
		files[i] = client.FileData{Path: fmt.Sprint("/f", i), Data: []byte("x")}
	}
	errs, err := f.WriteFiles(t.Context(), files)
	if !errors.Is(err, fserror.Unavailable) {
		t.Error(err)
	}
	for i, err := range errs {
		var e *fserror.Error
		if !errors.As(err, &e) || e.Path != files[i].Path {
			t.Fatalf("%s: %v", files[i].Path, err)
		}
	}
}
