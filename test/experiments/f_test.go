package experiments

import (
	"testing"

	"github.com/leasefs/leasefs/test/experiments/report"
)

func lostInFailovers(t *testing.T, r *report.Result) {}
