package namenode_test

import (
	"os"
	"testing"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
)

func TestMain(m *testing.M) {
	env.SideBySide()
	namenode.SettleAtOnce()
	os.Exit(m.Run())
}
