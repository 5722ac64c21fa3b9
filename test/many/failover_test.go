package many

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env"
)

// BenchmarkFailover is so many sessions, each with a connection and a file open for write, whose
// active namenode is killed: when the standby answers, and when it has all of them.
func BenchmarkFailover(b *testing.B) {
	for _, sessions := range []int{200, 2000, 8000} {
		b.Run(fmt.Sprint(sessions), func(b *testing.B) {
			if most := openFiles(b) * 15 / 32; sessions > most {
				b.Skipf("the limit of open files leaves room for %d sessions", most)
			}
			zk := strings.Join(env.StartZooKeeper(b, 3).Addrs(), ",")
			shared := []string{"--zookeeper", zk, "--namespace", "many", "--blocks", "file://" + filepath.Join(b.TempDir(), "blocks")}
			format := append([]string{"admin", "format"}, shared...)
			if out, err := exec.CommandContext(b.Context(), leasefs(b), format...).CombinedOutput(); err != nil { //nolint:gosec // its own
				b.Fatalf("%v\n%s", err, out)
			}
			active := startNamenode(b, shared...)
			answers := func(n *namenode) func() bool {
				r := env.RawAt(b, n.listen, "asker")
				return func() bool {
					_, err := r.NN.Stat(b.Context(), statOf(r.Who, "/"))
					return err == nil
				}
			}
			env.Eventually(b, "the first namenode is active", answers(active))
			standby := startNamenode(b, shared...)
			c := newCrowd(b, active, sessions, false, standby)
			c.await()

			c.back.Store(0)
			c.dials.Store(0)
			asks := answers(standby)
			before, killed := standby.cpu(), time.Now()
			active.kill()
			env.Eventually(b, "the standby is active", asks)
			b.ReportMetric(time.Since(killed).Seconds(), "s-to-active")
			stop := standby.bystander()
			c.await()
			b.ReportMetric(time.Since(killed).Seconds(), "s-to-all-back")
			b.ReportMetric((standby.cpu() - before).Seconds(), "cpu-s-to-all-back")
			b.ReportMetric(float64(c.dials.Load())/float64(sessions), "dials/session")
			report(b, stop(), "bystander")
			b.ReportMetric(float64(c.lost.Load()), "lost")
			b.ReportMetric(0, "ns/op")
		})
	}
}
