package many

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var (
	besideSizes = flag.String("sessions", "10,100,1000", "of BenchmarkBesideSessions: how many sessions, with commas between")
	besideWorks = flag.String("works", "create,stat", "of BenchmarkBesideSessions: the workloads of leasefs bench")
	besideCalls = flag.Int("calls", 2000, "of BenchmarkBesideSessions: how many calls each workload makes")
	besideRows  = flag.String("rows", "", "of BenchmarkBesideSessions: the file that gets the rows, as JSON lines")
)

// BenchmarkBesideSessions is leasefs bench beside so many sessions, each with a connection and a
// file open for write. scripts/bench-curves draws its rows.
func BenchmarkBesideSessions(b *testing.B) {
	var rows bytes.Buffer
	for text := range strings.SplitSeq(*besideSizes, ",") {
		b.Run(text, func(b *testing.B) {
			sessions, err := strconv.Atoi(text)
			if err != nil {
				b.Fatal(err)
			}
			if most := openFiles(b) * 15 / 32; sessions > most {
				b.Logf("the limit of open files leaves room for %d sessions", most)
				sessions = most
			}
			n := startNamenode(b)
			newCrowd(b, n, sessions, false).await()
			cmd := exec.CommandContext(b.Context(), leasefs(b), "--namenode", n.listen, "--json", "--quiet", "bench", "--run", *besideWorks, "--n", strconv.Itoa(*besideCalls)) //nolint:gosec // its own
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil {
				b.Fatal(err)
			}
			for line := range bytes.Lines(out) {
				var row map[string]any
				if err := json.Unmarshal(line, &row); err != nil {
					b.Fatalf("%v: %s", err, line)
				}
				row["sessions"] = sessions
				for unit, field := range map[string]string{"calls/s": "ops_per_s", "p99-ms": "p99_ms"} {
					if v, ok := row[field].(float64); ok {
						b.ReportMetric(v, fmt.Sprint(row["name"], "-", unit))
					}
				}
				if err := json.NewEncoder(&rows).Encode(row); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	if *besideRows != "" {
		if err := os.WriteFile(*besideRows, rows.Bytes(), 0o600); err != nil {
			b.Fatal(err)
		}
	}
}
