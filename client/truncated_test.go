package client_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/transfer"
	"github.com/leasefs/leasefs/test/env"
)

const (
	smallBlock = 64 << 10
	// manyBlocks is more than one answer of the namenode lists.
	manyBlocks = 300
)

// rewrite cuts a file and writes it again, as an opening with O_TRUNC does.
func rewrite(t *testing.T, fs *client.FS, path string, data []byte) {
	t.Helper()
	w, err := fs.Append(t.Context(), path, client.WithCut(0))
	must(t, err)
	_, err = w.Write(data)
	must(t, err)
	must(t, w.Close())
}

// oneOf fails the test if data mixes bytes of the old and the new content.
func oneOf(t *testing.T, data []byte) {
	t.Helper()
	if old := bytes.Count(data, []byte("o")); old != 0 && old != len(data) {
		t.Errorf("%d of %d bytes are of the old content", old, len(data))
	}
}

// A Reader that is open while its file is cut and written again to the same
// length returns what it opened, or an error of kind Truncated: never a mixture.
func TestReaderOfARewrittenFile(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	writer := n.Client(t, func(c *client.Config) { c.BlockSize = smallBlock })
	was, is := bytes.Repeat([]byte("o"), manyBlocks*smallBlock), bytes.Repeat([]byte("n"), manyBlocks*smallBlock)
	must(t, writer.WriteFile(t.Context(), "/f", was))
	readers := map[string]*client.Reader{}
	for _, name := range []string{"WriteTo", "Read", "ReadAt"} {
		r, err := n.Client(t).Open(t.Context(), "/f")
		must(t, err)
		readers[name] = r
	}
	cut := readers["Read"].Cut()
	rewrite(t, writer, "/f", is)
	for name, read := range map[string]func(r *client.Reader) ([]byte, error){
		"WriteTo": func(r *client.Reader) ([]byte, error) {
			var b bytes.Buffer
			_, err := r.WriteTo(&b)
			return b.Bytes(), err
		},
		"Read": func(r *client.Reader) ([]byte, error) { return io.ReadAll(struct{ io.Reader }{r}) },
		"ReadAt": func(r *client.Reader) ([]byte, error) {
			p := make([]byte, len(was))
			k, err := r.ReadAt(p, 0)
			return p[:k], err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := readers[name]
			got, err := read(r)
			if !errors.Is(err, fserror.Truncated) {
				t.Errorf("%d bytes, %v; want an error of kind %s", len(got), err, fserror.Truncated)
			}
			oneOf(t, got)
			// A refreshed Reader reads the file as it is now, and shows that it is another.
			must(t, r.Refresh(t.Context()))
			if r.Cut() == cut {
				t.Error("the Reader does not show that the file was cut")
			}
			_, err = r.Seek(0, io.SeekStart)
			must(t, err)
			if got, err = read(r); err != nil || !bytes.Equal(got, is) {
				t.Errorf("refreshed: %d bytes, %v", len(got), err)
			}
		})
	}
}

// The same when the file is as short as one answer, and the blocks that the
// Reader opened are gone from the store.
func TestReaderOfACollectedFile(t *testing.T) {
	n := env.Start(t)
	fs := n.Client(t, func(c *client.Config) { c.BlockSize = smallBlock })
	must(t, fs.WriteFile(t.Context(), "/f", bytes.Repeat([]byte("o"), 40*smallBlock)))
	r, err := n.Client(t).Open(t.Context(), "/f")
	must(t, err)
	head := make([]byte, 100)
	_, err = r.ReadAt(head, 0) // no block ahead is fetched
	must(t, err)
	oneOf(t, head)
	for _, b := range n.Raw(t, "look").File("/f").GetBlocks() {
		must(t, os.Remove(n.BlockFile(t, b.GetTerm(), b.GetSeq())))
	}
	rewrite(t, fs, "/f", bytes.Repeat([]byte("n"), 40*smallBlock))
	p := make([]byte, 100)
	if k, err := r.ReadAt(p, 20*smallBlock); !errors.Is(err, fserror.Truncated) {
		t.Errorf("%d bytes, %v; want an error of kind %s", k, err, fserror.Truncated)
	}
}

// refusing is a transport whose requests for some blocks are refused, as those are
// whose URL has expired.
type refusing struct {
	http.RoundTripper
	blocks map[string]bool // by the last name in their URL
}

func (f *refusing) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.blocks[path.Base(r.URL.Path)] {
		return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
	}
	return f.RoundTripper.RoundTrip(r)
}

// The same when the store refuses the URLs that the Reader has of the second half, and
// would not those that it is given in their place.
func TestReaderOfARewrittenFileAfterItsURLs(t *testing.T) {
	n := env.Start(t)
	fs := n.Client(t, func(c *client.Config) { c.BlockSize = smallBlock })
	must(t, fs.WriteFile(t.Context(), "/f", bytes.Repeat([]byte("o"), 40*smallBlock)))
	transport := &refusing{RoundTripper: http.DefaultTransport, blocks: map[string]bool{}}
	r, err := n.Client(t, func(c *client.Config) { c.HTTPClient = &http.Client{Transport: transport} }).Open(t.Context(), "/f")
	must(t, err)
	p := make([]byte, 40*smallBlock)
	_, err = r.ReadAt(p[:100], 0)
	must(t, err)
	for _, b := range n.Raw(t, "look").File("/f").GetBlocks()[20:] {
		transport.blocks[strconv.FormatUint(b.GetSeq(), 16)] = true
	}
	rewrite(t, fs, "/f", bytes.Repeat([]byte("n"), 40*smallBlock))
	k, err := r.ReadAt(p, 0)
	if !errors.Is(err, fserror.Truncated) {
		t.Errorf("%d bytes, %v; want an error of kind %s", k, err, fserror.Truncated)
	}
	oneOf(t, p[:k])
}

// WaitBeyond returns when a file was cut, even if it was written again to the
// same length before the namenode was asked.
func TestWaitBeyondOfARewrittenFile(t *testing.T) {
	n := env.Start(t)
	fs := n.Client(t)
	must(t, fs.WriteFile(t.Context(), "/f", []byte("old text")))
	r, err := n.Client(t).Open(t.Context(), "/f")
	must(t, err)
	cut := r.Cut()
	w, err := fs.Append(t.Context(), "/f", client.WithCut(0))
	must(t, err)
	_, err = w.Write([]byte("new text"))
	must(t, err)
	must(t, w.Close())
	length, open, err := r.WaitBeyond(t.Context(), 8)
	if err != nil || open || length != 8 || r.Cut() == cut {
		t.Fatal(length, open, err, "cut by", r.Cut())
	}
}

// once is a transport that does something before the first request.
type once struct {
	http.RoundTripper
	sync.Once
	do func()
}

func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	o.Do(o.do)
	return o.RoundTripper.RoundTrip(r)
}

// ReadFile returns the content of one moment, also of a file that is written
// again in the middle; a copy out of the namespace ends and stores nothing.
func TestWholeReadsOfARewrittenFile(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	writer := n.Client(t, func(c *client.Config) { c.BlockSize = smallBlock })
	was, is := bytes.Repeat([]byte("o"), manyBlocks*smallBlock), bytes.Repeat([]byte("n"), manyBlocks*smallBlock)
	must(t, writer.WriteFile(t.Context(), "/f", was))
	reader := func(next []byte) *client.FS {
		rewritten := &once{RoundTripper: http.DefaultTransport, do: func() { rewrite(t, writer, "/f", next) }}
		return n.Client(t, func(c *client.Config) { c.HTTPClient = &http.Client{Transport: rewritten} })
	}
	if data, err := reader(is).ReadFile(t.Context(), "/f"); err != nil || !bytes.Equal(data, is) {
		oneOf(t, data)
		t.Errorf("%d bytes, %v", len(data), err)
	}
	local := t.TempDir()
	_, err := transfer.Get(t.Context(), reader(was), "/f", filepath.Join(local, "copy"), transfer.Options{})
	if !errors.Is(err, fserror.Truncated) {
		t.Errorf("%v; want an error of kind %s", err, fserror.Truncated)
	}
	if names, err := os.ReadDir(local); err != nil || len(names) != 0 {
		t.Errorf("the copy left %v, %v", names, err)
	}
}

// What a Reader holds goes by the blocks it has read, not by how large a block
// may be.
func TestReadersOfSmallBlocksHoldLittle(t *testing.T) {
	n := env.Start(t)
	writer, reader := n.Client(t, func(c *client.Config) { c.BlockSize = smallBlock }), n.Client(t)
	must(t, writer.WriteFile(t.Context(), "/f", bytes.Repeat([]byte("x"), 40*smallBlock)))
	const readers = 40
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) //nolint:gosec // a size of memory
	}
	before := heap()
	open := make([]*client.Reader, readers)
	for i := range open {
		r, err := reader.Open(t.Context(), "/f")
		must(t, err)
		_, err = r.Read(make([]byte, 4096))
		must(t, err)
		open[i] = r
	}
	// A third of what they would hold with one buffer of a whole block each.
	if grown := heap() - before; grown > readers*blockstore.DefaultBlockSize/3 {
		t.Errorf("%d Readers that read blocks of %d KiB hold %d MiB", readers, smallBlock>>10, grown>>20)
	}
	for _, r := range open {
		must(t, r.Close())
	}
}
