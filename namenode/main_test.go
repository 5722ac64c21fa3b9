package namenode_test

import (
	"os"
	"testing"

	"github.com/leasefs/leasefs/testenv"
)

func TestMain(m *testing.M) {
	testenv.SideBySide()
	os.Exit(m.Run())
}
