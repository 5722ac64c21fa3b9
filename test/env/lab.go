package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/leasefs/leasefs/test/env/spawn"
)

// Lab is a network that only a test's own processes see: machines on one
// switch, each with an address, and nothing else to reach. Machines are network
// namespaces without names: each is there as long as a process is in it, and
// the keeper of each ends with this process, however that ends. So nothing is
// ever left behind, and nothing of this machine's network is changed.
//
// It needs root, or users who may make namespaces; scripts/setup says which.
// Its methods are safe for concurrent use.
type Lab struct {
	t        testing.TB
	dir      string
	machines []*Machine

	mu    sync.Mutex
	ways  map[string]string   // unix sockets, by machine and address
	drops map[[2]*Machine]int // how often Drop was called, from one to the other
}

// Machine is one machine of a Lab.
type Machine struct {
	lab    *Lab
	name   string
	ip     string
	keeper *exec.Cmd
}

// observer is the machine from which the test itself looks at the others.
const observer = "observer"

// StartLab makes a network of so many machines, which ends with the test.
func StartLab(t testing.TB, names ...string) *Lab {
	t.Helper()
	removeDeadLabs()
	dir, err := os.MkdirTemp("/tmp", fmt.Sprintf("%s%d-", labFolder, os.Getpid())) //nolint:usetesting // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	l := &Lab{t: t, dir: dir, ways: map[string]string{}, drops: map[[2]*Machine]int{}}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bridge := l.start("switch", nil)
	bridge.run("ip link add sw type bridge && ip link set sw up")
	for i, name := range append([]string{observer}, names...) {
		m := l.start(name, bridge)
		m.ip = "10.99.0." + strconv.Itoa(i+1)
		bridge.run(fmt.Sprintf("ip link add p%[1]d type veth peer name eth0 netns %[2]d && ip link set p%[1]d master sw up", i, m.keeper.Process.Pid))
		m.run("ip addr add " + m.ip + "/24 dev eth0 && ip link set lo up && ip link set eth0 up && " +
			"nft 'add table inet cut; add set inet cut from { type ipv4_addr; }; " +
			"add chain inet cut in { type filter hook input priority 0; }; add rule inet cut in ip saddr @from drop'")
		l.machines = append(l.machines, m)
	}
	return l
}

const labFolder = "leasefs-lab-"

// removeDeadLabs removes the sockets of processes that were killed.
func removeDeadLabs() {
	all, _ := filepath.Glob("/tmp/" + labFolder + "*-*") // the pattern is right
	for _, dir := range all {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), labFolder), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // somebody else's is left to him
		}
	}
}

// start makes a namespace. Those of users without root's rights hang on that of
// the switch, who is root in all of them.
func (l *Lab) start(name string, bridge *Machine) *Machine {
	l.t.Helper()
	argv := []string{"unshare", "--net"}
	if os.Getuid() != 0 {
		if bridge == nil {
			argv = append(argv, "--user", "--map-root-user")
		} else {
			argv = append(bridge.Via(), argv...)
		}
	}
	m := &Machine{lab: l, name: name}
	m.keeper = exec.Command(argv[0], append(argv[1:], "sh", "-c", "echo here; exec cat")...) // #nosec G204
	stdin, err := m.keeper.StdinPipe()                                                       // its end is the keeper's
	if err == nil {
		var out io.ReadCloser
		if out, err = m.keeper.StdoutPipe(); err == nil {
			if err = m.keeper.Start(); err == nil {
				l.t.Cleanup(func() { _ = stdin.Close(); _ = m.keeper.Wait() })
				if _, err = io.ReadFull(out, make([]byte, len("here\n"))); err != nil {
					err = fmt.Errorf("unshare does not work here (%w); scripts/setup test says what is missing", err)
				}
			}
		}
	}
	if err != nil {
		l.t.Fatalf("env: start machine %s: %v", name, err)
	}
	return m
}

// run runs a line of shell on the machine.
func (m *Machine) run(line string) {
	m.lab.t.Helper()
	argv := append(m.Via(), "sh", "-ec", line)
	if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil { // #nosec G204
		m.lab.t.Fatalf("env: on machine %s: %s: %v\n%s", m.name, line, err, out)
	}
}

// Machine returns the machine of that name.
func (l *Lab) Machine(name string) *Machine {
	l.t.Helper()
	for _, m := range l.machines {
		if m.name == name {
			return m
		}
	}
	l.t.Fatalf("env: the lab has no machine %q", name)
	return nil
}

// Via is what starts a command on the machine; nil: on this one. The command
// keeps the process number of what starts it.
func (m *Machine) Via() []string {
	if m == nil {
		return nil
	}
	argv := []string{"nsenter", "--net"}
	if os.Getuid() != 0 {
		argv = append(argv, "--user", "--preserve-credentials")
	}
	return append(argv, "--target", strconv.Itoa(m.keeper.Process.Pid))
}

// Addr is an address on the machine, as the others see it.
func (m *Machine) Addr(port int) string { return net.JoinHostPort(m.ip, strconv.Itoa(port)) }

// Drop makes the network lose, without a word, all that goes from one machine
// to the other, in that direction only.
func (l *Lab) Drop(from, to *Machine) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drops[[2]*Machine{from, to}]++
	to.run("nft add element inet cut from { " + from.ip + " }")
}

// Mend ends one Drop. As long as there was another one, all is still lost.
func (l *Lab) Mend(from, to *Machine) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	way := [2]*Machine{from, to}
	if l.drops[way]--; l.drops[way] == 0 {
		to.run("nft delete element inet cut from { " + from.ip + " }")
	}
}

// Cut is Drop in both directions, between a machine and each of the others.
func (l *Lab) Cut(m *Machine, others ...*Machine) {
	l.t.Helper()
	for _, o := range others {
		l.Drop(m, o)
		l.Drop(o, m)
	}
}

// Heal ends all that Drop and Cut did.
func (l *Lab) Heal() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.drops)
	for _, m := range l.machines {
		m.run("nft flush set inet cut from")
	}
}

// Way returns a unix socket of this machine that leads to a TCP address of the
// lab, from the machine m on: what cuts m off cuts it, too.
func (m *Machine) Way(addr string) string {
	m.lab.t.Helper()
	path, err := m.way(addr)
	if err != nil {
		m.lab.t.Fatal(err)
	}
	return path
}

func (m *Machine) way(addr string) (string, error) {
	l := m.lab
	l.mu.Lock()
	defer l.mu.Unlock()
	key := m.name + " " + addr
	if path := l.ways[key]; path != "" {
		return path, nil
	}
	path := filepath.Join(l.dir, strconv.Itoa(len(l.ways)))
	argv := append(m.Via(), "socat", "UNIX-LISTEN:"+path+",fork,backlog=128", "TCP:"+addr+",connect-timeout=3")
	cmd := exec.Command(argv[0], argv[1:]...) // #nosec G204
	var said bytes.Buffer
	cmd.Stderr = &said
	cmd.WaitDelay = time.Millisecond // its children may have the pipe, and end soon
	ended, err := spawn.Start(cmd)
	if err != nil {
		return "", fmt.Errorf("env: socat: %w; run make setup", err)
	}
	l.t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		if _, err := os.Stat(path); err == nil {
			l.ways[key] = path
			return path, nil
		}
		select {
		case <-poll.C:
		case <-ended:
			return "", fmt.Errorf("env: socat ended: %s", strings.TrimSpace(said.String()))
		}
	}
}

// DialContext connects to an address of the lab from the machine m, for
// grpc.WithContextDialer and the like.
func (m *Machine) DialContext(ctx context.Context, addr string) (net.Conn, error) {
	path, err := m.way(addr)
	if err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, "unix", path)
}

// Observer is a machine that nothing is cut from, for looking on.
func (l *Lab) Observer() *Machine { return l.Machine(observer) }

// dial connects from the observer, within a second.
func (l *Lab) dial(addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second) //nolint:usetesting // may outlive one test
	defer cancel()
	return l.Observer().DialContext(ctx, addr)
}
