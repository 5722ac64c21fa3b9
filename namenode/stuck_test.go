package namenode_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/namenode/reign"
)

// hungFS is a disk that hangs: who opens a file for writing waits.
type hungFS struct {
	vfs.FS
	dir  string
	on   *atomic.Bool
	thaw chan struct{}
}

func (f hungFS) OpenWrite(name string) (vfs.File, error) {
	if f.on.Load() && strings.HasPrefix(name, f.dir) {
		<-f.thaw
	}
	return f.FS.OpenWrite(name)
}

// TestElectedWithAHungDisk: the disk of the standby that is next in line hangs. It makes way
// for one whose disk does not.
func TestElectedWithAHungDisk(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var on atomic.Bool
	thaw := make(chan struct{})
	ours, _ := p.config()
	hung, _ := p.config(func(c *namenode.Config) { c.FS = hungFS{vfs.OS(), c.Data, &on, thaw} })
	other, _ := p.config()
	a, b := p.active(ours), p.start(hung)
	p.becomes(b, "standby")
	c := p.start(other)
	p.becomes(c, "standby")
	on.Store(true)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.becomes(c, "active")
	if b.Role() == "active" {
		t.Error("the one whose disk hangs is active, too")
	}
	close(thaw)
	if err := errors.Join(b.Close(), c.Close()); err != nil {
		t.Error(err)
	}
}

// TestElectedWithoutItsJournal: the standby that is next in line has a connection to ZooKeeper
// for the election, but can make none for its journal. It resigns.
func TestElectedWithoutItsJournal(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	var (
		mu      sync.Mutex
		conns   []net.Conn
		refuses bool
	)
	ours, _ := p.config(session(lossSession))
	cut, _ := p.config(session(lossSession), func(c *namenode.Config) {
		c.HA.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if refuses {
				return nil, errors.New("the certificate has expired")
			}
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			if err == nil {
				conns = append(conns, conn)
			}
			return conn, err
		}
	})
	other, _ := p.config(session(lossSession))
	a, b := p.active(ours), p.start(cut)
	p.becomes(b, "standby")
	c := p.start(other)
	p.becomes(c, "standby")
	mu.Lock()
	refuses = true
	_ = conns[len(conns)-2].Close() // the journal's: the election's was made last
	mu.Unlock()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	p.eventually("the one without its journal has ended", func() bool { return b.Err() != nil })
	if err := b.Err(); !reign.Restartable(err) || !strings.Contains(err.Error(), "since this namenode was elected") {
		t.Errorf("it ended with %v", err)
	}
	_ = b.Close() // as the program does then
	p.becomes(c, "active")
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
