package zk_test

import (
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/journal/zk"
	"github.com/leasefs/leasefs/test/env"
	"github.com/leasefs/leasefs/test/env/journaltest"
)

// Servers end, stop and come back under load: what was acknowledged is there,
// and writing continues by itself.
func TestScenario43Servers(t *testing.T) {
	z := env.StartZooKeeper(t, 3)
	path := root()
	session := func(c *zk.Config) { c.ZooKeeper.SessionTimeout = 2 * time.Second }
	a, b := open(t, z.Addrs(), path, session), open(t, z.Addrs(), path, session)
	begin(t, a, 1, 0)
	journaltest.Check(t, b, 1, 0)
	tail := follow(t, b)

	last := uint64(0)
	write := func(n uint64) *pump {
		first := last + 1
		last += n
		return startPump(t, a, 4, first, last)
	}
	run := func(what string) {
		t.Helper()
		write(200).wg.Wait()
		tail.reach(last)
		t.Logf("%s: %d records", what, last)
	}
	run("three servers")

	leader, _ := z.Leader(t)
	load := write(500)
	durable(t, a, last-450)
	leader.Kill(t)
	load.wg.Wait()
	run("leader killed")

	leader.Start(t)
	leader.WaitReady(t)
	leader, _ = z.Leader(t)
	leader.Pause(t)
	run("leader stopped")
	leader.Continue(t)
	leader.WaitReady(t)

	_, others := z.Leader(t)
	others[0].Pause(t)
	run("follower stopped")
	others[0].Continue(t)

	leader, others = z.Leader(t)
	leader.Kill(t)
	others[0].Kill(t)
	at := a.Durable()
	load = write(100)
	if a.Durable() != at {
		t.Fatalf("%d durable with one of three servers, %d before", a.Durable(), at)
	}
	others[0].Start(t)
	others[0].WaitReady(t)
	load.wg.Wait()
	run("two of three")
	leader.Start(t)
	leader.WaitReady(t)
	run("all back")
	tail.stop()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	journaltest.Check(t, open(t, z.Addrs(), path), 1, last)
}
