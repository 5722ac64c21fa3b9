package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// an alarm fires at some time with one set of series and not with another: values are in
// promtool's notation, "0+5x10" being ten minutes that add 5 each.
type alarm struct {
	name  string
	after string // the time at which it is looked at
	fires map[string]string
	quiet map[string]string
}

// ofA are one namenode's labels.
const ofA = `{job="leasefs", instance="a"}`

func alarms() []alarm {
	one := func(name, after, series, fires, quiet string) alarm {
		return alarm{name, after, map[string]string{series: fires}, map[string]string{series: quiet}}
	}
	gauge := func(name, after, metric, fires, quiet string) alarm {
		return one(name, after, metric+ofA, fires+"x2000", quiet+"x2000")
	}
	ready := func(a, b string) map[string]string {
		return map[string]string{`leasefs_ready` + ofA: a, `leasefs_ready{job="leasefs", instance="b"}`: b}
	}
	return []alarm{
		{"LeasefsNoActiveNamenode", "2m", ready("0x20", "0x20"), ready("1x20", "0x20")},
		{"LeasefsNoActiveNamenode", "2m", map[string]string{}, ready("1x20", "0x20")},
		{"LeasefsTwoActiveNamenodes", "2m", ready("1x20", "1x20"), ready("1x20", "0x20")},
		one("LeasefsNoStandby", "15m", `leasefs_standby`+ofA, "0x100", "1x100"),
		gauge("LeasefsNamenodeDown", "5m", "up", "0", "1"),
		{
			"LeasefsFlapping", "30m", map[string]string{`leasefs_term` + ofA: "1x5 2x5 3x5 4x5 5x40"},
			map[string]string{`leasefs_term` + ofA: "1x5 2x5 3x5 4x60"},
		},
		{
			"LeasefsStandbyBehind", "10m",
			map[string]string{"leasefs_durable_txid" + ofA: "20000x50", "leasefs_txid" + ofA: "9000x50", "leasefs_standby" + ofA: "1x50"},
			map[string]string{"leasefs_durable_txid" + ofA: "20000x50", "leasefs_txid" + ofA: "9000x50", "leasefs_standby" + ofA: "0x50"},
		},
		{
			"LeasefsJournalSlow", "15m",
			map[string]string{`leasefs_call_seconds_bucket{job="leasefs", method="flush", le="1"}`: "0x60", `leasefs_call_seconds_bucket{job="leasefs", method="flush", le="2.5"}`: "0+10x60", `leasefs_call_seconds_bucket{job="leasefs", method="flush", le="+Inf"}`: "0+10x60"},
			map[string]string{`leasefs_call_seconds_bucket{job="leasefs", method="flush", le="1"}`: "0+10x60", `leasefs_call_seconds_bucket{job="leasefs", method="flush", le="2.5"}`: "0+10x60", `leasefs_call_seconds_bucket{job="leasefs", method="flush", le="+Inf"}`: "0+10x60"},
		},
		gauge("LeasefsJournalBacklog", "5m", "leasefs_journal_backlog_bytes", "17000000", "15000000"),
		gauge("LeasefsZooKeeperFull", "5m", "leasefs_zookeeper_journal_bytes", "700000000", "500000000"),
		{
			"LeasefsNoImage", "15m",
			map[string]string{"leasefs_txid" + ofA: "4000000x100", "leasefs_image_txid" + ofA: "1x100"},
			map[string]string{"leasefs_txid" + ofA: "4000000x100", "leasefs_image_txid" + ofA: "2000000x100"},
		},
		gauge("LeasefsImageDamaged", "1m", "leasefs_images_damaged", "1", "0"),
		gauge("LeasefsBlocksDamaged", "1m", "leasefs_scrub_damaged_blocks", "1", "0"),
		gauge("LeasefsScrubLate", "61m", "leasefs_scrub_late_seconds", "1", "0"),
		gauge("LeasefsArchiveBehind", "6m", "leasefs_archive_lag_seconds", "61", "59"),
		one("LeasefsArchiveHole", "10m", "leasefs_archive_holes_total"+ofA, "0x5 1x20", "1x40"),
		one("LeasefsArchiveBlocksLost", "10m", "leasefs_archive_blocks_deleted_early_total"+ofA, "0x5 64x20", "64x40"),
		gauge("LeasefsSpaceShort", "5m", "leasefs_space_short", "1", "0"),
		one("LeasefsFullSoon", "20m", `leasefs_limit_full_seconds{job="leasefs", instance="a", resource="disk"}`, "80000x60", "90000x60"),
		gauge("LeasefsSafeMode", "40m", "leasefs_safe_mode", "1", "0"),
		{
			"LeasefsStoreTrouble", "15m",
			map[string]string{`leasefs_s3_requests_total{job="leasefs", instance="a", outcome="ok"}`: "0+8x60", `leasefs_s3_requests_total{job="leasefs", instance="a", outcome="trouble"}`: "0+2x60"},
			map[string]string{`leasefs_s3_requests_total{job="leasefs", instance="a", outcome="ok"}`: "0+99x60", `leasefs_s3_requests_total{job="leasefs", instance="a", outcome="trouble"}`: "0+1x60"},
		},
		{
			"LeasefsStoreErrors", "20m",
			map[string]string{`leasefs_s3_errors_total{job="leasefs", instance="a", kind="UNAVAILABLE"}`: "0+1x100"},
			map[string]string{`leasefs_s3_errors_total{job="leasefs", instance="a", kind="NOT_FOUND"}`: "0+1x100"},
		},
		gauge("LeasefsClocksDiffer", "10m", "leasefs_s3_clock_skew_seconds", "-30", "-10"),
		{
			"LeasefsClockWrong", "10m",
			map[string]string{"leasefs_clock_skew_seconds" + ofA: "-5x60", "leasefs_clock_skew_bound_seconds" + ofA: "1x60"},
			map[string]string{"leasefs_clock_skew_seconds" + ofA: "-5x60", "leasefs_clock_skew_bound_seconds" + ofA: "4x60"},
		},
		gauge("LeasefsGarbageGrows", "2h", "leasefs_garbage_overdue_seconds", "3601", "3599"),
		gauge("LeasefsStoreConflict", "1m", "leasefs_store_conflict", "1", "0"),
		gauge("LeasefsUnsweptBlocks", "2h", "leasefs_unswept_blocks", "10001", "9999"),
		gauge("LeasefsLeaseMonitorLate", "5m", "leasefs_lease_oldest_overdue_seconds", "61", "59"),
		gauge("LeasefsLeaseMonitorLate", "5m", "leasefs_granted_lease_oldest_overdue_seconds", "61", "59"),
		one("LeasefsOverloaded", "15m", "leasefs_calls_shed_total"+ofA, "0+1x100", "5x100"),
		one("LeasefsConnectionsRefused", "15m", "leasefs_connections_refused_total"+ofA, "0+1x100", "5x100"),
		one("LeasefsPanic", "10m", "leasefs_panics_total"+ofA, "0x5 1x20", "1x40"),
		gauge("LeasefsLeaseHistoryLost", "1m", "leasefs_lease_history_failing", "1", "0"),
		one("LeasefsLeaseHistoryLost", "10m", "leasefs_lease_history_lost_total"+ofA, "0x5 7x20", "7x40"),
		gauge("LeasefsAuditLost", "1m", "leasefs_audit_failing", "1", "0"),
		one("LeasefsAuditLost", "10m", "leasefs_audit_lost_total"+ofA, "0x5 7x20", "7x40"),
	}
}

// TestAlarms: each alarm of deploy/prometheus-alerts.yml fires, as Prometheus reads it, at what
// it is there for, and not just before that.
func TestAlarms(t *testing.T) {
	t.Parallel()
	rules, err := filepath.Abs("../../deploy/prometheus-alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(rules)
	if err != nil {
		t.Fatal(err)
	}
	untried := map[string]bool{}
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(raw), -1) {
		untried[m[1]] = true
	}
	type series struct {
		Series string `json:"series"`
		Values string `json:"values"`
	}
	var tests []any
	for _, a := range alarms() {
		delete(untried, a.name)
		for _, fires := range []bool{true, false} {
			all, want := a.quiet, 0
			if fires {
				all, want = a.fires, 1
			}
			input := []series{}
			for s, values := range all {
				input = append(input, series{s, values})
			}
			tests = append(tests, map[string]any{
				"name": a.name, "interval": "1m", "input_series": input,
				"promql_expr_test": []any{map[string]any{
					"expr":      fmt.Sprintf(`count(ALERTS{alertname=%q, alertstate="firing"}) or vector(0)`, a.name),
					"eval_time": a.after, "exp_samples": []any{map[string]any{"labels": "{}", "value": want}},
				}},
			})
		}
	}
	for name := range untried {
		t.Errorf("%s is not tried", name)
	}
	file, err := json.Marshal(map[string]any{"rule_files": []string{rules}, "evaluation_interval": "1m", "tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "alarms.yml")
	if err := os.WriteFile(name, file, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "../../.cache/bin/promtool", "test", "rules", name).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
