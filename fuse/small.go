package fuse

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"strings"
	"sync"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// hiddenNames are the names that a mount gives to files that are removed or
// replaced while they are open. They end in a mark of the mount, so that it knows
// them however late it meets them, as in a listing that was read before the file went.
type hiddenNames struct{ mark string }

func newHiddenNames() hiddenNames {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hiddenNames{mark: "-" + hex.EncodeToString(b[:])}
}

func (h hiddenNames) name(of string) string { return fspath.TempNameOf(of, h.mark) }

func (h hiddenNames) has(name string) bool { return strings.HasSuffix(name, h.mark) }

// maxRefusals is of how many files it is remembered that something was refused.
const maxRefusals = 1000

// refusals are the files of which something was refused that programs that write
// in place want. Most of those do not say what went wrong, so the log does, once a file.
type refusals struct {
	mu sync.Mutex
	of map[uint64]struct{}
}

func (r *refusals) first(ino uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, was := r.of[ino]; was {
		return false
	}
	if r.of == nil || len(r.of) >= maxRefusals {
		r.of = make(map[uint64]struct{})
	}
	r.of[ino] = struct{}{}
	return true
}

// tell logs that something was refused of the file.
func (r *refusals) tell(n *node, what string, args ...any) {
	if !r.first(n.ino) {
		return
	}
	n.m.log.Warn("leasefs: refused "+what+": files only grow at their end; see docs/POSIX.md, editors and databases", append([]any{"path", n.path(""), "inode", n.ino}, args...)...)
}

// statusTime is for how long statfs tells the same.
const statusTime = time.Second

// statusCache keeps what the namenode says of its room.
type statusCache struct {
	mu sync.Mutex
	at time.Time
	s  client.NamenodeStatus
}

func (c *statusCache) get(ctx context.Context, f *client.FS) (client.NamenodeStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < statusTime {
		return c.s, nil
	}
	all, err := f.Status(ctx)
	if err != nil {
		return c.s, err
	}
	for _, s := range all {
		if s.Err == nil && s.Role == "active" {
			c.s, c.at = s, time.Now()
			return s, nil
		}
	}
	return c.s, fserror.New(fserror.Unavailable, "statfs", "", "no active namenode answered")
}
