package namenode_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/client"
)

// What ZooKeeper keeps is told by status and metrics, of the active namenode and of a
// standby, in nodes and in bytes of its memory.
func TestStatusTellsWhatZooKeeperKeeps(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a := p.active(acfg)
	b := p.start(bcfg)
	f := p.client(acfg.Listen)
	const changes = 20
	for i := range changes {
		if err := f.Mkdir(t.Context(), fmt.Sprint("/", i), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, addr := range []string{acfg.Listen, bcfg.Listen} {
		p.eventually(addr+" tells of the nodes", func() bool {
			list, err := client.QueryStatus(t.Context(), client.Config{Namenodes: []string{addr}})
			return err == nil && list[0].Err == nil && list[0].ZooKeeperNodes > changes && list[0].ZooKeeperBytes > 400*list[0].ZooKeeperNodes
		})
	}
	for _, s := range []string{a.HTTPAddr(), b.HTTPAddr()} {
		if _, text := page(t, s, "/metrics"); !strings.Contains(text, "leasefs_zookeeper_journal_nodes ") {
			t.Errorf("no number of nodes in %.500s", text)
		}
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}
