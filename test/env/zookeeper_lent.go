package env

import (
	"errors"
	"path"
	"slices"
	"sync"
	"testing"
	"time"

	zookeeper "github.com/go-zookeeper/zk"
)

// idle are the servers that LendZooKeeper has started and no test has now.
var idle struct {
	sync.Mutex
	all []*ZooKeeper
}

// LendZooKeeper is StartZooKeeper of one server, for a test that neither harms it
// nor makes nodes under a password: when the test has passed, another one gets the
// server, emptied, since a start takes more than most tests do. Who calls it calls
// EndLentZooKeepers in TestMain.
func LendZooKeeper(t testing.TB) *ZooKeeper {
	t.Helper()
	idle.Lock()
	var z *ZooKeeper
	if last := len(idle.all) - 1; last >= 0 {
		z, idle.all = idle.all[last], idle.all[:last]
	}
	idle.Unlock()
	var err error
	if z != nil {
		err = z.empty()
	} else {
		z, err = RunZooKeeper(1)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the test's connections
		if t.Failed() {
			for _, s := range z.servers {
				if s.model == nil {
					t.Log(s.failure("was lent to a failed test"))
				}
			}
			_ = z.Close() // namenodes may still use it
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.all = append(idle.all, z)
	})
	return z
}

// EndLentZooKeepers ends the servers of LendZooKeeper.
func EndLentZooKeepers() {
	idle.Lock()
	defer idle.Unlock()
	for _, z := range idle.all {
		_ = z.Close() // what is left of its folder is in /tmp
	}
	idle.all = nil
}

// perMulti is how many nodes one request deletes: ZooKeeper ends the connection
// of one that has more than a megabyte.
const perMulti = 1000

// empty deletes all nodes but ZooKeeper's own.
func (z *ZooKeeper) empty() error {
	conn, _, err := zookeeper.Connect(z.Addrs(), patience, zookeeper.WithLogInfo(false))
	if err != nil {
		return err
	}
	defer time.AfterFunc(patience, conn.Close).Stop() // its requests wait for a connection
	defer conn.Close()
	for began := time.Now(); ; {
		var all []any
		all, err = deletes(conn, "/", nil)
		for some := range slices.Chunk(all, perMulti) {
			if err == nil {
				_, err = conn.Multi(some...)
			}
		}
		switch {
		case errors.Is(err, zookeeper.ErrNoNode): // of a session that has just ended
		case (errors.Is(err, zookeeper.ErrConnectionClosed) || errors.Is(err, zookeeper.ErrNoServer)) && time.Since(began) < patience: // a machine that stalls loses connections
		default:
			return err
		}
	}
}

// deletes appends the deletion of each node below one, the lowest first.
func deletes(conn *zookeeper.Conn, node string, all []any) ([]any, error) {
	names, _, err := conn.Children(node)
	for _, name := range names {
		child := path.Join(node, name)
		if err != nil || child == "/zookeeper" {
			continue
		}
		if all, err = deletes(conn, child, all); err == nil {
			all = append(all, &zookeeper.DeleteRequest{Path: child, Version: -1})
		}
	}
	return all, err
}
