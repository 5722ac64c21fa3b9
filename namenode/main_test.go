package namenode_test

import (
	"os"
	"testing"

	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/testenv"
)

func TestMain(m *testing.M) {
	testenv.SideBySide()
	namenode.SettleAtOnce()
	os.Exit(m.Run())
}
