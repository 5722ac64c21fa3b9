package namenode_test

import (
	"os"
	"testing"

	"github.com/leasefs/leasefs/namenode/offline"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) {
	env.SideBySide()
	offline.Settle = 0
	code := m.Run()
	env.EndLentZooKeepers()
	os.Exit(code)
}
