package experiments

import (
	"testing"

	"github.com/leasefs/leasefs/test/experiments/report"
)

func deadLeases(t *testing.T, r *report.Result) {}
