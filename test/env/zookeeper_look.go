package env

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func (s *ZooKeeperServer) dial() (net.Conn, error) {
	if s.machine != nil {
		return s.machine.lab.dial(s.Addr())
	}
	return net.DialTimeout("tcp", s.Addr(), time.Second)
}

// command sends one of ZooKeeper's four-letter words.
func (s *ZooKeeperServer) command(word string) (string, error) {
	c, err := s.dial()
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(c, word); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(c)
	return string(answer), err
}

// Mode is "leader", "follower", "standalone", or empty while the server is not
// part of a quorum.
func (s *ZooKeeperServer) Mode() string {
	if s.model != nil {
		return s.model.mode()
	}
	answer, err := s.command("srvr")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(answer) {
		if m, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(m)
		}
	}
	return ""
}

// Stat is a value of ZooKeeper's own, such as zk_approximate_data_size. A server
// that is busy is asked again.
func (s *ZooKeeperServer) Stat(t testing.TB, name string) int64 {
	t.Helper()
	if s.model != nil {
		return s.model.stat(t, name)
	}
	all, err := s.Stats()
	for began := time.Now(); err != nil && time.Since(began) < patience; {
		all, err = s.Stats()
	}
	if err != nil {
		t.Fatal(err)
	}
	n, ok := all[name]
	if !ok {
		t.Fatalf("ZooKeeper server %d does not say %s: %v", s.id, name, all)
	}
	return n
}

// Stats are all such values that are whole numbers. It may be asked for at any time, also of a
// server that does not run, which is an error, as is one that is silent for a second, or that is
// part of no quorum.
func (s *ZooKeeperServer) Stats() (map[string]int64, error) {
	answer, err := s.command("mntr")
	if err != nil {
		return nil, err
	}
	all := map[string]int64{}
	for line := range strings.Lines(answer) {
		if f := strings.Fields(line); len(f) == 2 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				all[f[0]] = n
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("ZooKeeper server %d says %q", s.id, answer) // it looks for its quorum
	}
	return all, nil
}

// PurgeDisk does what autopurge does once an hour: snapshots and logs go but for
// the newest three snapshots and what came since. It returns what is left, in
// bytes.
func (s *ZooKeeperServer) PurgeDisk(t testing.TB) int64 {
	t.Helper()
	cmd := exec.Command("java", "-cp", "/etc/zookeeper/conf:/usr/share/java/zookeeper.jar", "org.apache.zookeeper.server.PurgeTxnLog", s.dir, s.dir, "-n", "3") // #nosec G204
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("PurgeTxnLog: %v\n%s", err, out)
	}
	size := int64(0)
	files, err := filepath.Glob(filepath.Join(s.dir, "version-2", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		var st syscall.Stat_t // logs are made longer in advance: what they take counts
		if syscall.Stat(name, &st) == nil {
			size += st.Blocks * 512
		}
	}
	return size
}
