package namenode_test

import (
	"context"
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
// pairs of hundreds; and how far the archive was behind, at most. The journals are on a disk, fsync on, or in
// a ZooKeeper of three servers.
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
	lag := lagOf(b, at[1])
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
	b.ReportMetric(float64(lag().Milliseconds()), "lag-ms")
}

// lagOf asks again and again how far an archive is behind, until most is called, which returns
// the most of it.
func lagOf(b *testing.B, fs *client.FS) (most func() time.Duration) {
	b.Helper()
	ctx, stop := context.WithCancel(b.Context())
	result := make(chan time.Duration)
	go func() {
		most := time.Duration(0)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			if st, err := fs.Status(ctx); err == nil && len(st) == 1 && st[0].Archive != nil && st[0].Archive.Problem == "" {
				most = max(most, st[0].Archive.Lag)
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		result <- most
	}()
	return func() time.Duration {
		stop()
		return <-result
	}
}
