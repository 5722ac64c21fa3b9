package sim

import (
	"bufio"
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasefs/leasefs/client"
)

// Used is what the fleet holds, by name.
type Used map[string]int

// bounds is how much more than before the clients came there may be when they are
// gone and all limits have passed.
var bounds = Used{
	"watchers": 0, "sessions_connected": 0, "unfinished_bytes": 0, "unsent_bytes": 0, "cache_sessions": 0, "cache_keys": 0, "open_files": 0,
	"leases": 0, "granted_leases": 0, "attached_files": 0, "allocated_blocks": 0, "detached_subtrees": 0, "panics_total": 0,
	"connections":        2,  // of whoever has just asked
	"go_goroutines":      20, // of these connections, and of work that is due just then
	"process_open_fds":   20, // of these connections
	"ZooKeeper sessions": 0,
	"ZooKeeper watches":  0,
	"handles":            0, // of files on all disks
}

// exceeds tells what of now is more than before and its bound.
func (now Used) exceeds(before Used) (list []string) {
	for what, bound := range bounds {
		if now[what] > before[what]+bound {
			list = append(list, fmt.Sprintf("%s: %d, were %d", what, now[what], before[what]))
		}
	}
	slices.Sort(list)
	return list
}

// used counts what is held now: by all namenodes together, ZooKeeper and the disks.
func (w *World) used(ctx context.Context) (Used, error) {
	now := Used{
		"handles":            w.shared.Handles(),
		"ZooKeeper sessions": len(w.zk.Sessions()), "ZooKeeper watches": len(w.watched()),
	}
	pipe := &http.Transport{DialContext: w.follow.c.host.DialContext, DisableKeepAlives: true}
	for _, n := range w.nodes {
		n.mu.Lock()
		now["handles"] += n.disk.Handles()
		n.mu.Unlock()
		if err := now.Add(ctx, pipe, n.name+":8021"); err != nil {
			return nil, err
		}
	}
	now["go_goroutines"] = runtime.NumGoroutine() // each has told of those of all
	delete(now, "process_open_fds")
	return now, nil
}

// watched is who watches what at ZooKeeper.
func (w *World) watched() (all []string) {
	for i := range w.cfg.ZooKeeper {
		all = append(all, w.zk.Server(i).Watched()...)
	}
	slices.Sort(all)
	return all
}

// Add adds what a namenode tells of itself at its HTTP address.
func (now Used) Add(ctx context.Context, via http.RoundTripper, addr string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := via.RoundTrip(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		what, value, _ := strings.Cut(strings.TrimPrefix(lines.Text(), "leasefs_"), " ")
		if _, ok := bounds[what]; !ok {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return err
		}
		now[what] += int(n)
	}
	return nil
}

// await asks at these intervals until done says nothing, and reports what it says after limit.
func (w *Work) await(limit, every time.Duration, done func(context.Context) string) {
	ctx, cancel := context.WithTimeout(context.Background(), limit+time.Minute)
	defer cancel()
	for began := time.Now(); ; <-time.After(every) {
		what := done(ctx)
		if what == "" {
			return
		}
		if time.Since(began) > limit {
			w.truth.broken("%s, %v after all was healed", what, limit)
			return
		}
	}
}

// Base is what is used when all namenodes run, and nobody but the follower is there.
func (w *Work) Base(used func(context.Context) (Used, error)) (before Used) {
	w.await(2*w.with.Settled, time.Second, func(ctx context.Context) string {
		now, err := used(ctx)
		if err != nil {
			return err.Error()
		}
		if len(now.exceeds(before)) == 0 && len(before.exceeds(now)) == 0 {
			return ""
		}
		before = now
		return "what the namenodes hold does not come to rest"
	})
	return before
}

// checkLeft has all clients leave and sees that what they held is given back within
// the limits: a file that a dead writer has left open after twice the hard limit, a
// block without a file when no URL can put it any more. (Which of an earlier reign no
// record vouches for, only an operator can know; so one asks for the collection.)
func (w *World) checkLeft(before Used) {
	w.Leave()
	w.checkOrphans()
	w.CheckGone(before, w.used)
	w.log.note("world", "watched at ZooKeeper: %v", w.watched())
	if runtime.NumGoroutine() > before["go_goroutines"]+bounds["go_goroutines"] {
		var stacks strings.Builder
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1) // the most frequent first
		w.log.note("world", "goroutines: %.4000s", stacks.String())
	}
}

// CheckGone sees that what clients held who have left is given back within the limits.
func (w *Work) CheckGone(before Used, used func(context.Context) (Used, error)) {
	w.await(2*w.with.Hard+w.with.Settled, time.Second, func(ctx context.Context) string {
		now, err := used(ctx)
		if err != nil {
			return err.Error()
		}
		list := now.exceeds(before)
		if len(list) == 0 {
			w.log.note("world", "what is left: %v", now)
			return ""
		}
		return "the clients are gone and have left " + strings.Join(list, "; ")
	})
}

// orphansGone is when a block without a file is gone: the last URL for it is over
// and a margin more, it is garbage until URLs by which it might be read are over, and
// each of the two is looked for once a while.
const orphansGone = latestPut + 2*(urlLife+time.Minute) + settled

// orphansAsked is how often that is looked at: each look asks the store for all blocks.
const orphansAsked = 15 * time.Second

// checkOrphans sees that the store has just the blocks of files.
func (w *World) checkOrphans() {
	o := w.operator
	ctx, cancel := context.WithTimeout(context.Background(), orphansGone+time.Minute)
	defer cancel()
	if o.connect(ctx) != nil {
		w.truth.broken("the operator finds no namenode")
		return
	}
	defer func() { o.end(); o.fs = nil }()
	w.await(orphansGone, orphansAsked, func(ctx context.Context) string {
		if _, err := o.fs.Admin().Collect(ctx); err != nil {
			return "gc: " + err.Error()
		}
		sum, err := o.fs.Admin().Fsck(ctx, "", false, func(client.FsckProblem) error { return nil })
		if err != nil {
			return "fsck: " + err.Error()
		}
		if n := w.stored(); n != int(sum.Blocks) { //nolint:gosec // some hundreds
			return fmt.Sprintf("the store has %d blocks, and files have %d", n, sum.Blocks)
		}
		return ""
	})
}

// stored is how many blocks the store or the shared folder has.
func (w *World) stored() (n int) {
	if w.store != nil {
		for _, name := range w.store.Names("sim/") {
			if strings.Contains(name, "/blocks/") {
				n++
			}
		}
		return n
	}
	var walk func(dir string)
	walk = func(dir string) {
		names, _ := w.shared.List(dir) // of one that was just removed there are none
		for _, name := range names {
			at := path.Join(dir, name)
			if info, err := w.shared.Stat(at); err == nil && info.Mode()&fs.ModeDir != 0 {
				walk(at)
			} else if path.Ext(name) == ".blk" {
				n++
			}
		}
	}
	walk(sharedDir)
	return n
}
