package namenode_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/namenode"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// BenchmarkArchive makes empty files by turns at two namenodes, of which one
// archives its journal, and tells what that adds: the median and the 99th percentile of the ratios of
// pairs of hundreds. The journals are on a disk, fsync on, or in a ZooKeeper of three servers.
func BenchmarkArchive(b *testing.B) {
	b.Run("disk", func(b *testing.B) { benchArchive(b, nil) })
	b.Run("zookeeper", func(b *testing.B) { benchArchive(b, env.StartZooKeeper(b, 3).Addrs()) })
}

func benchArchive(b *testing.B, zookeeper []string) {
	b.Helper()
	const batch = 100
	var at [2]*client.FS // without, with
	for i := range at {
		cfg := benchConfig(b)
		cfg.Blocks = "file://" + b.TempDir()
		if i == 1 {
			cfg.Archive = time.Hour
		}
		if zookeeper != nil {
			host := spawn.Loopback()
			cfg.Listen, cfg.HTTP = host+":7070", host+":7071"
			cfg.HA = &namenode.HA{ZooKeeper: zookeeper, Name: fmt.Sprint("bench", i), SessionTimeout: calmSession}
			env.Format(b, cfg)
		}
		s := benchStart(b, cfg)
		defer func() { _ = s.Close() }()
		env.Eventually(b, "it is active", func() bool { return s.Role() == "active" })
		fs, err := client.New(b.Context(), client.Config{Namenodes: []string{s.Addr()}, User: "root"})
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = fs.Close() }()
		at[i] = fs
	}
	var ratios []float64
	b.ResetTimer()
	for i := 0; i < b.N; i += batch {
		var took [2]time.Duration
		for k := range at {
			k = (k + i/batch) % 2 // each is the first as often
			began := time.Now()
			for j := range batch {
				if err := at[k].WriteFile(b.Context(), fmt.Sprintf("/f%d", i+j), nil); err != nil {
					b.Fatal(err)
				}
			}
			took[k] = time.Since(began)
		}
		ratios = append(ratios, float64(took[1])/float64(took[0]))
	}
	b.StopTimer()
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "median-ratio")
	b.ReportMetric(ratios[len(ratios)*99/100], "p99-ratio")
}
