package experiments

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/leasefs/leasefs/test/env/spawn"
)

// process is a program that ends with the test.
type process struct {
	cmd    *exec.Cmd
	exited <-chan struct{}
	addr   string // where it takes clients
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// cpu is how much of a processor the process has used, as of now.
func (p *process) cpu(t testing.TB) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	must(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	must(t, err)
	system, err := strconv.Atoi(fields[12])
	must(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

// rss is how many bytes of memory it has.
func (p *process) rss(t testing.TB) float64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return float64(kib) * 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

var built struct {
	sync.Once
	dir string // to be removed by TestMain
}

// program is leasefs.
func program(t testing.TB) string {
	t.Helper()
	built.Do(func() {
		if *leasefs != "" {
			return
		}
		var err error
		built.dir, err = os.MkdirTemp("", "leasefs-experiments-") //nolint:usetesting // for all tests of the run
		must(t, err)
		*leasefs = filepath.Join(built.dir, "leasefs")
		build := exec.Command("go", "build", "-o", *leasefs, "./cmd/leasefs") //nolint:gosec // our own
		build.Dir = filepath.Join("..", "..")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	})
	return *leasefs
}

// startNamenode starts a namenode on a new folder, and waits until it serves.
func startNamenode(t testing.TB, args ...string) *process {
	t.Helper()
	read, write, err := os.Pipe()
	must(t, err)
	defer write.Close()
	p := &process{cmd: exec.Command(program(t), append([]string{"namenode", "--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--log-level", "error"}, args...)...)} //nolint:gosec // our own
	p.cmd.Stdout, p.cmd.Stderr = write, os.Stderr
	p.exited, err = spawn.Start(p.cmd)
	must(t, err)
	t.Cleanup(p.kill)
	lines := bufio.NewReader(read)
	for p.addr == "" {
		line, err := lines.ReadString('\n')
		must(t, err)
		if strings.HasPrefix(line, "ready") {
			for _, word := range strings.Fields(line) {
				if _, _, err := net.SplitHostPort(strings.Trim(word, ",;")); err == nil && p.addr == "" {
					p.addr = strings.Trim(word, ",;")
				}
			}
		}
	}
	go func() { _, _ = lines.WriteTo(io.Discard); _ = read.Close() }() // until it ends
	return p
}

// etcdServer is a single etcd, which can be killed and started again.
type etcdServer struct {
	*process
	data, clients, peers string
	args                 []string
}

// startEtcd starts etcd on a new folder, and waits until it leads and answers.
func startEtcd(t testing.TB, args ...string) *etcdServer {
	t.Helper()
	s := &etcdServer{data: t.TempDir(), clients: freePort(t), peers: freePort(t), args: args}
	s.start(t)
	t.Cleanup(func() { s.kill() })
	c := etcdClient(t, s.clients)
	for began := time.Now(); ; {
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := c.Get(soon, "key")
		cancel()
		if err == nil {
			return s
		}
		if time.Since(began) > 2*time.Minute {
			t.Fatalf("etcd does not answer: %v", err)
		}
	}
}

// start starts it, and waits until it takes connections.
func (s *etcdServer) start(t testing.TB) {
	t.Helper()
	p := &process{addr: s.clients, cmd: exec.Command(*etcd, append([]string{ //nolint:gosec // as asked for
		"--name", "x", "--data-dir", s.data, "--listen-client-urls", "http://" + s.clients, "--advertise-client-urls", "http://" + s.clients,
		"--listen-peer-urls", "http://" + s.peers, "--initial-advertise-peer-urls", "http://" + s.peers, "--initial-cluster", "x=http://" + s.peers,
		"--logger", "zap", "--log-level", "error",
	}, s.args...)...)}
	p.cmd.Env = append(os.Environ(), "ETCD_UNSUPPORTED_ARCH="+runtime.GOARCH) // it refuses some machines otherwise
	said, err := os.Create(filepath.Join(s.data, "said"))
	must(t, err)
	defer said.Close()
	p.cmd.Stdout, p.cmd.Stderr = said, said
	p.exited, err = spawn.Start(p.cmd)
	must(t, err)
	s.process = p
	for {
		c, err := net.DialTimeout("tcp", s.clients, time.Second)
		if err == nil {
			_ = c.Close()
			return
		}
		select {
		case <-p.exited:
			text, _ := os.ReadFile(said.Name())
			t.Fatalf("etcd ended: %v: %s", p.cmd.ProcessState, text)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// freePort is an address that nobody listens at.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// quietLog keeps what etcd's client says to itself.
var quietLog = zap.NewNop()

func commandOutput(name string, args ...string) (string, error) {
	text, err := exec.Command(name, args...).Output() //nolint:gosec // as asked for
	return string(text), err
}
