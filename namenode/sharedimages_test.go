package namenode_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env/s3env"
)

// object sends a request for an object of the store, which must succeed.
func (p *rivals) object(method, name string, body []byte) []byte {
	p.t.Helper()
	status, answer, err := p.server.Send(p.t.Context(), method, "/"+p.server.Bucket+"/"+name, body)
	if err != nil || status/100 != 2 {
		p.t.Fatalf("%s %s: %d %s %v", method, name, status, answer, err)
	}
	return answer
}

// once starts a namenode, waits until it reigns, does something, and closes it.
func (p *rivals) once(do func(*rival), mods ...func(*namenode.Config)) {
	p.t.Helper()
	r := p.start(append(mods, session(calmSession))...)
	p.reigns(r)
	do(r)
	if err := r.Close(); err != nil {
		p.t.Error(err)
	}
}

// TestDamagedSharedImage: a start passes over a damaged image, and nothing older
// goes until there are two good ones.
func TestDamagedSharedImage(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		p.once(func(r *rival) {
			for i := range 2 {
				r.raw.Create(fmt.Sprint("/a", i))
				r.checkpoint(p.t)
			}
		})
		before := p.stored("/image-")
		p.server.Put(p.t, before[1], []byte("no image"))
		p.once(func(r *rival) {
			for i := range 2 {
				r.raw.File(fmt.Sprint("/a", i))
			}
			r.raw.Create("/b0")
			r.checkpoint(p.t)
			if now := p.stored("/image-"); !slices.Contains(now, before[0]) {
				p.t.Errorf("the only image that was good is gone: %v, before %v", now, before)
			}
			r.raw.Create("/b1")
			r.checkpoint(p.t)
			if now := p.stored("/image-"); len(now) != 2 || slices.Contains(now, before[0]) || slices.Contains(now, before[1]) {
				p.t.Errorf("images %v, before %v", now, before)
			}
		})
		p.once(func(r *rival) {
			for _, path := range []string{"/a0", "/a1", "/b0", "/b1"} {
				r.raw.File(path)
			}
		})
	})
}

// forgetJournal is a ZooKeeper that lost the journal.
func (p *pair) forgetJournal() {
	p.t.Helper()
	sess, err := zkconn.Dial(p.t.Context(), zkconn.Config{Servers: p.zk.Addrs(), SessionTimeout: calmSession})
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = sess.Close() }()
	var remove func(path string) error
	remove = func(path string) error {
		children, err := sess.Children(p.t.Context(), path)
		if errors.Is(err, zookeeper.ErrNoNode) {
			return nil
		}
		for _, c := range children {
			if err == nil {
				err = remove(path + "/" + c)
			}
		}
		if err == nil {
			err = sess.Delete(p.t.Context(), path, -1)
		}
		return err
	}
	if err := remove("/leasefs/pair/journal"); err != nil {
		p.t.Fatal(err)
	}
}

// TestImageOfAnotherHistory: a namespace continues from an older image, and then a
// newer one of what it was before turns up. It is never taken for this one's.
func TestImageOfAnotherHistory(t *testing.T) {
	t.Parallel()
	onRivals(t, func(p *rivals) {
		p.once(func(r *rival) {
			for i := range 2 {
				r.raw.Create(fmt.Sprint("/old", i))
				r.checkpoint(p.t)
				for j := range 20 {
					r.raw.Create(fmt.Sprintf("/lost%d-%d", i, j))
				}
			}
		})
		images := p.stored("/image-")
		late := p.object(http.MethodGet, images[1], nil)
		p.object(http.MethodDelete, images[1], nil)
		p.forgetJournal()
		p.once(func(r *rival) { r.raw.Create("/new0") })
		// Further than the journal: no record may be lost silently.
		p.server.Put(p.t, images[1], late)
		cfg, _ := p.config(func(c *namenode.Config) { c.Blocks = p.server.URL("here") })
		s, err := namenode.Start(p.t.Context(), cfg)
		if err == nil {
			_ = s.Close()
		}
		if !errors.Is(err, fserror.Damaged) || !strings.Contains(err.Error(), "ZooKeeper has lost records, or the image is of a namespace that went on elsewhere") {
			p.t.Fatalf("%v", err)
		}
		p.object(http.MethodDelete, images[1], nil)
		p.once(func(r *rival) {
			for i := range 60 {
				r.raw.Create(fmt.Sprint("/more", i))
			}
		})
		p.server.Put(p.t, images[1], late)
		var log lines
		p.once(func(r *rival) {
			for _, path := range []string{"/old0", "/new0", "/more0", "/more59"} {
				r.raw.File(path)
			}
			if !log.has("no record names") {
				p.t.Error("the other history's image was used")
			}
			p.eventually("an image is published by itself", func() bool { return log.has("image written") })
		}, func(c *namenode.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	})
}

// TestThrottle: while no image can be written ZooKeeper's memory is not filled:
// writes are told to wait, and continue when the store is back.
func TestThrottle(t *testing.T) {
	t.Parallel()
	server := s3env.Start(t, s3env.Versitygw)
	server.SetEnv(t)
	p := &rivals{newPair(t), server}
	r := p.start(session(calmSession), func(c *namenode.Config) { c.CheckpointBytes = 64 << 10 })
	p.reigns(r)
	r.s3.Set(func(req *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
		if isImagePut(req, body) {
			return s3env.Trouble()
		}
		return send(body)
	})
	w := r.raw.Create("/f")
	const piece = 8 << 10
	text := strings.Repeat("x", piece)
	var err error
	var at int64
	const most = 64 // 512 KiB: far beyond
	for n := 0; n < most && err == nil; n++ {
		if at+piece > 60<<10 { // a tail is no longer
			w, at = r.raw.Create(fmt.Sprint("/f", n)), 0
		}
		if err = r.raw.Flush(w, at, text); err == nil {
			at += piece
		}
	}
	if !errors.Is(err, fserror.Retry) || !strings.Contains(err.Error(), "an image has to be written before ZooKeeper can take more") {
		t.Fatalf("%v", err)
	}
	r.s3.Set(nil)
	p.eventually("writes continue", func() bool { return r.raw.Flush(w, at, text) == nil })
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
