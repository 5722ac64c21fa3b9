package namenode_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/client"
)

// BenchmarkAudit makes empty files in batches that travel together, with and without an audit
// log, and tells the processor time of both sides of a file: what an audit log costs at most.
func BenchmarkAudit(b *testing.B) {
	for _, on := range []bool{false, true} {
		b.Run(fmt.Sprintf("on=%t", on), func(b *testing.B) {
			cfg := benchConfig(b)
			if on {
				cfg.Audit.File = filepath.Join(b.TempDir(), "audit")
			}
			s := benchStart(b, cfg)
			defer func() { _ = s.Close() }()
			fs, err := client.New(b.Context(), client.Config{Namenodes: []string{s.Addr()}, User: "root"})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = fs.Close() }()
			const batch = 1000
			files := make([]client.FileData, batch)
			before := processorTime(b)
			b.ResetTimer()
			for i := 0; i < b.N; i += batch {
				for j := range files {
					files[j] = client.FileData{Path: fmt.Sprintf("/f%d", i+j)}
				}
				if _, err := fs.WriteFiles(b.Context(), files[:min(batch, b.N-i)]); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used, in nanoseconds.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
