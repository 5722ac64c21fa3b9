package e2e_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
)

// TestNamespaceIsMadeOnce: a namenode does not start before the format, nor with a
// mistyped name or store; after the format it does, and a second one is refused.
func TestNamespaceIsMadeOnce(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 3*time.Minute)
	zk := strings.Join(sharedZooKeeper(t).Addrs(), ",")
	blocks := "file://" + filepath.Join(t.TempDir(), "blocks")
	on := func(name, blocks string) *namenode {
		return newNamenode(t, filepath.Join(t.TempDir(), "data"), "--zookeeper", zk, "--namespace", name, "--blocks", blocks, "--session-timeout", sessionTimeout.String())
	}
	refused := func(n *namenode, says ...string) {
		t.Helper()
		p := n.launch(ctx)
		p.ends(ctx, fserror.ExitNotFound)
		text := behindLog(p.err.String())
		oneLine(t, text)
		names(t, text, says...)
	}
	refused(on("once", blocks), "no namespace once", "leasefs admin format", "leasefs admin restore")
	format := []string{leasefs, "admin", "format", "--zookeeper", zk, "--namespace", "once", "--blocks", blocks}
	p := start(ctx, t, spec{argv: format, stdin: reader("")})
	p.ends(ctx, 0)
	names(t, p.out.String(), "once: made namespace ", blocks)
	p = start(ctx, t, spec{argv: format, stdin: reader("")})
	p.ends(ctx, fserror.ExitExists)
	oneLine(t, p.err.String())
	names(t, p.err.String(), "has a namespace once already", "--namespace")
	p = start(ctx, t, spec{argv: append(format, "--if-missing"), stdin: reader("")})
	p.ends(ctx, 0)
	names(t, p.out.String(), "has a namespace once already")

	refused(on("onec", blocks), "no namespace onec (it has ", "once", "--namespace")
	refused(on("once", blocks+"2"), "blocks2", "--blocks", "mount")
	n := on("once", blocks)
	n.start(ctx)
	n.write(ctx, "text\n", "create", "/f")
	// A lock that would not outlive a failover is raised, and that is said; or not, as one likes.
	least := 3 * sessionTimeout
	raised := "the time to live was raised to " + least.String()
	for _, c := range []struct {
		flags []string
		said  bool
	}{{[]string{"--ttl", "200ms"}, true}, {[]string{"--ttl", least.String()}, false}, {[]string{"--ttl", "200ms", "--quiet"}, false}, {nil, false}} {
		args := append(append([]string{"lock"}, c.flags...), "/lock", "--", "true")
		if r := n.try(ctx, "", args...); r.code != 0 || strings.Contains(r.err, raised) != c.said {
			t.Errorf("%q: exit code %d, %q", args, r.code, r.err)
		}
	}
	n.term(ctx)
}
