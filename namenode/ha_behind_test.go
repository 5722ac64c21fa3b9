package namenode_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/zkproxy"
)

// logged makes a namenode's log call fn with the first line that says so.
func logged(message string, fn func()) func(*namenode.Config) {
	var once sync.Once
	return func(c *namenode.Config) {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.MessageKey && a.Value.String() == message {
				once.Do(fn)
			}
			return a
		}}))
	}
}

// publish makes an active namenode publish so many.
func publish(t *testing.T, r *env.Raw, name string, images int) {
	t.Helper()
	for i := range images {
		r.Create(fmt.Sprint("/", name, i))
		if _, err := r.Admin.Checkpoint(t.Context(), &pb.CheckpointRequest{Caller: r.Who}); err != nil {
			t.Fatal(err)
		}
	}
}

// A standby that is elected, and lacks records that were purged meanwhile, starts
// again from an image.
func TestElectedTooFarBehind(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	a := p.start(acfg)
	p.becomes(a, "active")
	hold := make(chan struct{})
	bcfg, way := p.config(logged("elected", func() { close(hold) }))
	b := p.start(bcfg)
	way.Decide(func(_ int32, body []byte) zkproxy.Action {
		if bytes.Contains(body, []byte("/journal/batches/")) {
			<-hold
		}
		return zkproxy.Forward
	})
	way.Cut() // what it is being told of
	publish(t, env.RawAt(t, acfg.Listen, "writer"), "f", 3)
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	<-b.Done()
	if err := b.Err(); !reign.Restartable(err) || !strings.Contains(err.Error(), "purged") {
		t.Errorf("it ended with %v", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	b = p.start(bcfg)
	p.becomes(b, "active")
	env.RawAt(t, bcfg.Listen, "reader").File("/f2")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// holdOpen is a disk on which an image is read only when it is let.
type holdOpen struct {
	vfs.FS
	reached, release chan struct{}
	once             *sync.Once
}

func (h holdOpen) Open(name string) (vfs.File, error) {
	if strings.Contains(name, "/image-") {
		h.once.Do(func() { close(h.reached); <-h.release })
	}
	return h.FS.Open(name)
}

// A namenode starts though all the images that it has found are removed before it
// has read one, and the journal behind them.
func TestStartWhileImagesAreRemoved(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	a := p.start(acfg)
	p.becomes(a, "active")
	r := env.RawAt(t, acfg.Listen, "writer")
	publish(t, r, "f", 2)
	hold := holdOpen{vfs.OS(), make(chan struct{}), make(chan struct{}), new(sync.Once)}
	bcfg, _ := p.config(func(c *namenode.Config) { c.FS = hold })
	started := make(chan error, 1)
	var b *namenode.Server
	go func() {
		var err error
		b, err = namenode.Start(t.Context(), bcfg)
		started <- err
	}()
	<-hold.reached
	publish(t, r, "g", 2)
	close(hold.release)
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(b, "active")
	env.RawAt(t, bcfg.Listen, "reader").File("/g1")
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
