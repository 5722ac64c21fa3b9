package experiments

import (
	"testing"

	"github.com/leasefs/leasefs/test/experiments/report"
)

func softLimits(t *testing.T, r *report.Result) {}
