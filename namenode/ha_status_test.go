package namenode_test

import (
	"testing"

	"github.com/leasefs/leasefs/client"
)

// TestStatusFindsTheActive: who knows only a standby is told of the active namenode,
// which answers for itself.
func TestStatusFindsTheActive(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	acfg, _ := p.config()
	bcfg, _ := p.config()
	a := p.active(acfg)
	b := p.start(bcfg)
	ask := func(addrs ...string) []client.NamenodeStatus {
		t.Helper()
		list, err := client.QueryStatus(t.Context(), client.Config{Namenodes: addrs})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	p.eventually("the standby names the active namenode, which is asked too", func() bool {
		list := ask(bcfg.Listen)
		return len(list) == 2 && list[0].Role == "standby" && list[0].Active == acfg.Listen &&
			list[1].Address == acfg.Listen && list[1].Role == "active" && list[1].Active == ""
	})
	if list := ask(bcfg.Listen, acfg.Listen); len(list) != 2 || list[0].Address != bcfg.Listen || list[1].Address != acfg.Listen {
		t.Errorf("with both in the list: %+v", list)
	}
	for _, s := range []interface{ Close() error }{b, a} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
