package namenode_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

// Who was taken out of a group is told of nothing more by a watch that was begun before, and
// answered nothing more by what a client has kept.
func TestFormerMembers(t *testing.T) {
	t.Parallel()
	var out atomic.Bool
	n := env.Start(t, func(c *namenode.Config) {
		c.Groups = func(user string) []string {
			if user == "ann" && !out.Load() {
				return []string{"crew"}
			}
			return nil
		}
	})
	ctx := t.Context()
	root, ann := n.Client(t), n.Client(t, asAnn, func(c *client.Config) { c.Cache = true })
	check(t, root.Mkdir(ctx, "/closed", 0o750), root.Chown(ctx, "/closed", "", "crew"), root.Mkdir(ctx, "/closed/d", 0o755), root.WriteFile(ctx, "/closed/f", []byte("secret")))
	w := must[*client.Watcher](t)(ann.Watch(ctx, "/closed/d", client.WatchOptions{Recursive: true}))
	env.Eventually(t, "it is kept", func() bool {
		_, kept, err := lowlevel.Of(ann).LstatKept(ctx, lowlevel.Ref{Path: "/closed/f"})
		check(t, err)
		return kept
	})
	ended := make(chan error, 1)
	go func() {
		for {
			events, err := w.Next()
			if err != nil || len(events) > 0 {
				ended <- err
				return
			}
		}
	}()
	out.Store(true)
	env.Eventually(t, "the watch ends", func() bool { return len(ended) > 0 })
	if err := <-ended; !errors.Is(err, fserror.Permission) {
		t.Errorf("the watch: %v", err)
	}
	env.Eventually(t, "nothing more is kept", func() bool {
		_, err := ann.Stat(ctx, "/closed/f")
		return errors.Is(err, fserror.Permission)
	})
	if data, err := ann.ReadFile(ctx, "/closed/f"); !errors.Is(err, fserror.Permission) {
		t.Errorf("she reads %q: %v", data, err)
	}
}
