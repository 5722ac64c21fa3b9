package experiments

import (
	"testing"

	"github.com/leasefs/leasefs/test/experiments/report"
)

func clockRates(t *testing.T, r *report.Result) {}
