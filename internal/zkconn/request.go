package zkconn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"
)

// refusals are the answers of ZooKeeper that say for certain that a request did
// nothing.
var refusals = []error{
	zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, zk.ErrNotEmpty, zk.ErrNoAuth, zk.ErrAuthFailed,
	zk.ErrNoChildrenForEphemerals, zk.ErrInvalidACL, zk.ErrInvalidFlags, zk.ErrInvalidPath, zk.ErrBadArguments,
}

// ErrLost says that the connection or the session was lost before the answer came. A read
// can be repeated; of a write see Unknown.
var ErrLost = errors.New("no answer from ZooKeeper")

// sayEvery is between two lines of the log about what is waited for.
const sayEvery = 5 * time.Second

// Retry calls fn, whose requests are of this session, until it ends with
// anything but a lost answer, and says every five seconds that it waits, and for
// what. It ends with the last of those (ErrLost) when the session is over, and
// with ctx's error.
func (s *Session) Retry(ctx context.Context, fn func() error) error {
	done := make(chan struct{})
	defer close(done)
	var last atomic.Pointer[error] // of fn
	go func() {
		tick := time.NewTicker(sayEvery)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				connected, failure := s.Connected(), s.hosts.lastFailure()
				if err := last.Load(); err != nil && connected {
					failure = *err
				}
				s.log.Warn("waiting for ZooKeeper", "connected", connected, "last failure", failure)
			}
		}
	}()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := fn()
		if !errors.Is(err, ErrLost) || s.Err() != nil {
			return err
		}
		last.Store(&err)
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
		case <-s.done:
		}
		t.Stop()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// Unknown reports whether err leaves open if the request was carried out: the
// connection or the session was lost, the context ended, or ZooKeeper said
// something that is no refusal. A write is then to be read back, or repeated so
// that twice is the same as once; it may still happen later, as long as the
// session lives.
func Unknown(err error) bool {
	if err == nil {
		return false
	}
	for _, r := range refusals {
		if errors.Is(err, r) {
			return false
		}
	}
	return true
}

type outcome[T any] struct {
	v   T
	err error
}

// await waits until a request can be sent. What waits here, and not in the
// client, is gone with its context, and keeps no goroutine.
func (s *Session) await(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case <-s.connection():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.done:
		return s.explain(s.Err())
	}
}

// do runs a request of the client, once there is a connection, until it ends,
// ctx does, or the session is over.
func do[T any](ctx context.Context, s *Session, request func() (T, error)) (T, error) {
	var none T
	if err := s.await(ctx); err != nil {
		return none, err
	}
	ch := make(chan outcome[T], 1)
	go func() {
		v, err := request()
		ch <- outcome[T]{v, err}
	}()
	select {
	case o := <-ch:
		return o.v, s.explain(o.err)
	case <-ctx.Done():
		return none, context.Cause(ctx)
	case <-s.done:
		return none, s.explain(s.Err())
	}
}

// explain marks an unknown outcome as lost, with the end of the session as the
// cause where there is one.
func (s *Session) explain(err error) error {
	if !Unknown(err) {
		return err
	}
	if over := s.Err(); over != nil {
		err = over
	}
	return fmt.Errorf("%w: %w", ErrLost, err)
}

func about(what, path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoAuth):
		return fmt.Errorf("ZooKeeper %s %s: %w: the node belongs to another user; give the user and password with which it was made", what, path, err)
	}
	return fmt.Errorf("ZooKeeper %s %s: %w", what, path, err)
}

// Get reads a node. What it returns is as new as anything that this session has
// seen, and may be older than what others have written since: see Sync.
func (s *Session) Get(ctx context.Context, path string) ([]byte, *zk.Stat, error) {
	type found struct {
		data []byte
		stat *zk.Stat
	}
	f, err := do(ctx, s, func() (f found, err error) {
		f.data, f.stat, err = s.conn.Get(path)
		return f, err
	})
	return f.data, f.stat, about("read", path, err)
}

// GetW is Get with a watch: the channel gets one event when the node changes or
// goes, or when the session is over. Reconnections are bridged by the client.
func (s *Session) GetW(ctx context.Context, path string) ([]byte, *zk.Stat, <-chan zk.Event, error) {
	type found struct {
		data []byte
		stat *zk.Stat
		ch   <-chan zk.Event
	}
	f, err := do(ctx, s, func() (f found, err error) {
		f.data, f.stat, f.ch, err = s.conn.GetW(path)
		f.ch = s.watch(f.ch, err)
		return f, err
	})
	return f.data, f.stat, f.ch, about("watch", path, err)
}

// ExistsW reports whether a node exists and watches it: the channel gets one
// event when it comes, changes or goes, or when the session is over.
func (s *Session) ExistsW(ctx context.Context, path string) (bool, <-chan zk.Event, error) {
	type found struct {
		there bool
		ch    <-chan zk.Event
	}
	f, err := do(ctx, s, func() (f found, err error) {
		f.there, _, f.ch, err = s.conn.ExistsW(path)
		f.ch = s.watch(f.ch, err)
		return f, err
	})
	return f.there, f.ch, about("watch", path, err)
}

// watch counts a watch of the client until it goes off, which is at the end of
// the session at the latest.
func (s *Session) watch(ch <-chan zk.Event, err error) <-chan zk.Event {
	if err != nil {
		return nil
	}
	s.watches.Add(1)
	out := make(chan zk.Event, 1)
	go func() {
		e := <-ch
		s.watches.Add(-1)
		out <- e
	}()
	return out
}

// Exists reports whether a node exists.
func (s *Session) Exists(ctx context.Context, path string) (bool, error) {
	there, err := do(ctx, s, func() (bool, error) {
		there, _, err := s.conn.Exists(path)
		return there, err
	})
	return there, about("look for", path, err)
}

// Children lists the names below a node.
func (s *Session) Children(ctx context.Context, path string) ([]string, error) {
	names, err := do(ctx, s, func() ([]string, error) {
		names, _, err := s.conn.Children(path)
		return names, err
	})
	return names, about("list", path, err)
}

// ChildrenW is Children with a watch: the channel gets one event when a child
// comes or goes, when the node itself goes, or when the session is over. Nothing
// else ends the watch.
func (s *Session) ChildrenW(ctx context.Context, path string) ([]string, <-chan zk.Event, error) {
	type found struct {
		names []string
		ch    <-chan zk.Event
	}
	f, err := do(ctx, s, func() (f found, err error) {
		f.names, _, f.ch, err = s.conn.ChildrenW(path)
		f.ch = s.watch(f.ch, err)
		return f, err
	})
	return f.names, f.ch, about("watch", path, err)
}

// Create makes a node; flags are those of package zk. It returns the node's
// path, which has a number added with zk.FlagSequence.
func (s *Session) Create(ctx context.Context, path string, data []byte, flags int32) (string, error) {
	made, err := do(ctx, s, func() (string, error) { return s.conn.Create(path, data, flags, s.acl) })
	return made, about("create", path, err)
}

// Set writes a node if it has that version; -1 means any.
func (s *Session) Set(ctx context.Context, path string, data []byte, version int32) (*zk.Stat, error) {
	stat, err := do(ctx, s, func() (*zk.Stat, error) { return s.conn.Set(path, data, version) })
	return stat, about("write", path, err)
}

// Delete removes a node if it has that version; -1 means any.
func (s *Session) Delete(ctx context.Context, path string, version int32) error {
	_, err := do(ctx, s, func() (struct{}, error) { return struct{}{}, s.conn.Delete(path, version) })
	return about("delete", path, err)
}

// Sync makes the reads after it see all that was written anywhere before it.
func (s *Session) Sync(ctx context.Context, path string) error {
	_, err := do(ctx, s, func() (string, error) { return s.conn.Sync(path) })
	return about("sync", path, err)
}

// EnsureShared makes an empty node at the top of the tree, if it is missing, in
// which everybody may make nodes of their own, and list them. Nobody else may
// remove what is in it, nor change who may.
func (s *Session) EnsureShared(ctx context.Context, path string) error {
	there, err := s.Exists(ctx, path)
	if err != nil || there {
		return err
	}
	_, err = do(ctx, s, func() (string, error) { return s.conn.Create(path, nil, 0, s.sharedACL()) })
	if errors.Is(err, zk.ErrNodeExists) {
		return nil
	}
	return about("create", path, err)
}

// EnsurePath makes a node and those above it that are missing, all empty. Nodes
// that are there already are left as they are.
func (s *Session) EnsurePath(ctx context.Context, path string) error {
	if !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") {
		return fmt.Errorf("ZooKeeper path %q must begin with / and not end with it", path)
	}
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		there, err := s.Exists(ctx, path[:i])
		if err == nil && !there {
			_, err = s.Create(ctx, path[:i], nil, 0)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return err
		}
	}
	return nil
}
