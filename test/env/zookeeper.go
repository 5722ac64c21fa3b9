package env

import (
	"bytes"
	"cmp"
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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/leasefs/leasefs/test/env/spawn"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// zkServer is Debian's ZooKeeper.
const zkServer = "/usr/share/zookeeper/bin/zkServer.sh"

// zkSecure is the class path of a server that speaks TLS: the manifest of
// Debian's zookeeper.jar leaves parts of Netty out, without which such a server
// takes connections and ends each (NoClassDefFoundError:
// io/netty/handler/codec/ByteToMessageDecoder). They are in libnetty-java, which
// is there with it.
const zkSecure = " -cp /etc/zookeeper/conf:/usr/share/java/zookeeper.jar:/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar:/usr/share/java/netty-transport-native-unix-common.jar"

// ZooKeeperTick is the tickTime of the servers that tests start: sessions last
// from twice as long to a minute.
const ZooKeeperTick = 500 * time.Millisecond

// patience is how long a server may take to do what a test waits for, on a
// machine that does much else. No test depends on its being short.
const patience = 90 * time.Second

// ZooKeeper is an ensemble of real servers on loopback addresses, in processes
// that end with this one. Its methods are not for concurrent use.
type ZooKeeper struct {
	dir     string
	servers []*ZooKeeperServer
	model   *zkmodel.Ensemble // instead of processes: see modelVariable
}

// ZooKeeperServer is one server of an ensemble.
type ZooKeeperServer struct {
	id         int
	dir        string
	host       string
	client     int // ports
	quorum     int
	election   int
	secure     int // port for TLS; 0: none
	machine    *Machine
	cmd        *exec.Cmd
	proc       *os.Process
	pid        atomic.Int64    // that of proc; 0: there is none
	exited     <-chan struct{} // closed when proc has ended, of which cmd says how
	standalone bool
	cfg        *ZooKeeperConfig
	model      *modelServer // instead of proc
}

// ZooKeeperConfig is what may be unusual about an ensemble.
type ZooKeeperConfig struct {
	Servers int // 3
	// SyncLimit is after how many ticks without a word a follower gives its
	// leader up, and the leader a follower; 0: 4.
	SyncLimit int
	// SnapCount is after how many transactions a server writes a snapshot; 0:
	// ZooKeeper's default.
	SnapCount int
	// Heap is how much memory a server's Java may take, in MiB; 0: 512.
	Heap int
	// Machines are where the servers run, one each; nil: here.
	Machines []*Machine
	// Cert and Key are PEM files with which the servers speak TLS, to whom the
	// certificate of Trusted says who they are, at ports besides. Empty: no TLS.
	Cert, Key, Trusted string
}

// StartZooKeeper starts an ensemble of n servers that ends with the test. The
// test fails, and is never skipped, where ZooKeeper is not installed.
func StartZooKeeper(t testing.TB, n int) *ZooKeeper {
	t.Helper()
	return StartZooKeeperWith(t, ZooKeeperConfig{Servers: n})
}

// StartZooKeeperWith is StartZooKeeper of an unusual ensemble.
func StartZooKeeperWith(t testing.TB, cfg ZooKeeperConfig) *ZooKeeper {
	t.Helper()
	z, err := runZooKeeper(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = z.Close() })
	return z
}

// RunZooKeeper is StartZooKeeper for several tests together, from TestMain: who
// calls it calls Close. It returns when the servers have a leader.
func RunZooKeeper(n int) (*ZooKeeper, error) { return runZooKeeper(ZooKeeperConfig{Servers: n}) }

// AroundTests is a package's tests with three servers around them, for its
// TestMain. They are in *into while the tests run.
func AroundTests(m *testing.M, into **ZooKeeper) interface{ Run() int } { return aroundTests{m, into} }

type aroundTests struct {
	m    *testing.M
	into **ZooKeeper
}

func (a aroundTests) Run() int {
	z, err := RunZooKeeper(3)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*a.into = z
	code := a.m.Run()
	if err := z.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	// A ZooKeeper client that was closed without a connection goes after a second,
	// and on a busy machine goleak does not wait for so long at once.
	for range 5 {
		if goleak.Find() == nil {
			break
		}
	}
	return code
}

func runZooKeeper(cfg ZooKeeperConfig) (*ZooKeeper, error) {
	if wantsModel() {
		return modelZooKeeper(cfg)
	}
	if _, err := os.Stat(zkServer); err != nil {
		return nil, fmt.Errorf("env: ZooKeeper is not installed (%w); run `make setup`, or as root: apt-get install zookeeper", err)
	}
	var failures []error
	for range 5 { // another process may take a port between finding and using it
		z, err := newZooKeeper(&cfg)
		if err != nil {
			return nil, err
		}
		if err = z.startAll(); err == nil {
			return z, nil
		}
		if cerr := z.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		failures = append(failures, err)
		if !errors.Is(err, errPort) {
			break
		}
	}
	return nil, errors.Join(failures...)
}

var errPort = errors.New("a port was taken by another process")

func newZooKeeper(cfg *ZooKeeperConfig) (*ZooKeeper, error) {
	n := max(cfg.Servers, len(cfg.Machines))
	dir, err := os.MkdirTemp("", "leasefs-zookeeper-") //nolint:usetesting // may outlive one test
	if err != nil {
		return nil, err
	}
	z := &ZooKeeper{dir: dir}
	host := spawn.Loopback()
	var held []io.Closer // until all are found, so that none is found twice
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	for i := range n {
		s := &ZooKeeperServer{id: i + 1, dir: filepath.Join(dir, strconv.Itoa(i+1)), host: host, standalone: n == 1, cfg: cfg}
		z.servers = append(z.servers, s)
		if cfg.Machines != nil { // where all ports are free
			s.machine = cfg.Machines[i]
			s.host, s.client, s.quorum, s.election = s.machine.ip, 2181, 2888, 3888
			continue
		}
		ports := []*int{&s.client, &s.quorum, &s.election}
		if cfg.Cert != "" {
			ports = append(ports, &s.secure)
		}
		for _, port := range ports {
			l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
			if err != nil {
				return nil, err
			}
			held = append(held, l)
			*port = l.Addr().(*net.TCPAddr).Port
		}
	}
	for _, s := range z.servers {
		if err := s.configure(z.servers); err != nil {
			return nil, err
		}
	}
	return z, nil
}

func (s *ZooKeeperServer) configure(all []*ZooKeeperServer) error {
	if err := os.MkdirAll(s.dir, 0o750); err != nil {
		return err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "dataDir=%s\nclientPort=%d\nclientPortAddress=%s\n", s.dir, s.client, s.host)
	limit := 4
	if s.cfg.SyncLimit > 0 {
		limit = s.cfg.SyncLimit
	}
	fmt.Fprintf(&b, "tickTime=%d\nmaxSessionTimeout=60000\ninitLimit=20\nsyncLimit=%d\nmaxClientCnxns=0\n", ZooKeeperTick.Milliseconds(), limit)
	// Of what a server has written nothing is lost when it is killed, synced or not: only
	// a machine that dies loses it, and this one does not.
	b.WriteString("admin.enableServer=false\n4lw.commands.whitelist=srvr,ruok,mntr,cons\npreAllocSize=4096\nforceSync=no\n")
	if s.cfg.SnapCount > 0 {
		fmt.Fprintf(&b, "snapCount=%d\n", s.cfg.SnapCount)
	}
	if s.secure != 0 {
		fmt.Fprintf(&b, "secureClientPort=%d\nsecureClientPortAddress=%s\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n", s.secure, s.host)
		fmt.Fprintf(&b, "ssl.keyStore.type=PEM\nssl.keyStore.location=%s\nssl.trustStore.type=PEM\nssl.trustStore.location=%s\nssl.clientAuth=need\n", s.keyStore(), s.cfg.Trusted)
		if err := s.writeKeyStore(); err != nil {
			return err
		}
	}
	if !s.standalone {
		for _, o := range all {
			fmt.Fprintf(&b, "server.%d=%s:%d:%d\n", o.id, o.host, o.quorum, o.election)
		}
	}
	if err := os.WriteFile(filepath.Join(s.dir, "zoo.cfg"), []byte(b.String()), 0o640); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.dir, "myid"), []byte(strconv.Itoa(s.id)), 0o640)
}

func (s *ZooKeeperServer) keyStore() string { return filepath.Join(s.dir, "key.pem") }

// writeKeyStore writes key and certificate into one file, as ZooKeeper wants
// them.
func (s *ZooKeeperServer) writeKeyStore() error {
	var all []byte
	for _, name := range []string{s.cfg.Key, s.cfg.Cert} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		all = append(all, text...)
	}
	return os.WriteFile(s.keyStore(), all, 0o600)
}

func (z *ZooKeeper) startAll() error {
	for _, s := range z.servers {
		if err := s.start(); err != nil {
			return err
		}
	}
	for _, s := range z.servers {
		if err := s.waitReady(); err != nil {
			return err
		}
	}
	return nil
}

func (s *ZooKeeperServer) start() error {
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o640)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the server has its own
	argv := append(s.machine.Via(), zkServer, "start-foreground", filepath.Join(s.dir, "zoo.cfg"))
	cmd := exec.Command(argv[0], argv[1:]...) // #nosec G204
	more := ""
	switch jars := zooKeeperJars(); {
	case jars != "":
		more = " -cp /etc/zookeeper/conf:" + jars + "/*" // it counts instead of Debian's, which is in front of it
	case s.secure != 0:
		more = zkSecure
	}
	cmd.Env = append(os.Environ(), "JMXDISABLE=true",
		fmt.Sprintf("JVMFLAGS=-Xms64m -Xmx%dm -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dzookeeper.root.logger=INFO,CONSOLE -Dzookeeper.log.dir=%s%s", cmp.Or(s.cfg.Heap, 512), s.dir, more))
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	exited, err := spawn.Start(cmd)
	s.cmd, s.proc, s.exited = cmd, cmd.Process, exited
	if err != nil {
		return fmt.Errorf("env: start ZooKeeper: %w", err)
	}
	s.pid.Store(int64(s.proc.Pid))
	return nil
}

// PID is the id of the server's process, 0 if there is none. It may be asked for at any time.
func (s *ZooKeeperServer) PID() int { return int(s.pid.Load()) }

func (s *ZooKeeperServer) logFile() string { return filepath.Join(s.dir, "server.log") }

// waitReady waits until the server answers as a member of a quorum.
func (s *ZooKeeperServer) waitReady() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience) //nolint:usetesting // may outlive one test
	defer cancel()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		if s.Mode() != "" {
			return nil
		}
		select {
		case <-poll.C:
		case <-s.exited:
			return s.failure("ended")
		case <-ctx.Done():
			return s.failure("did not become ready")
		}
	}
}

func (s *ZooKeeperServer) failure(what string) error {
	log, _ := os.ReadFile(s.logFile())
	select {
	case <-s.exited:
		what += fmt.Sprintf(" (%v)", s.cmd.ProcessState)
	default:
	}
	err := fmt.Errorf("env: ZooKeeper server %d %s; its log ends:\n%s", s.id, what, log[max(0, len(log)-2000):])
	if bytes.Contains(log, []byte("Address already in use")) {
		err = fmt.Errorf("%w: %w", errPort, err)
	}
	return err
}

// Addr is where the server takes clients.
func (s *ZooKeeperServer) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.client)) }

// Kill ends the server as a power cut would, and waits until it is gone.
func (s *ZooKeeperServer) Kill(t testing.TB) { t.Helper(); s.end(t, syscall.SIGKILL) }

// Stop ends the server cleanly.
func (s *ZooKeeperServer) Stop(t testing.TB) { t.Helper(); s.end(t, syscall.SIGTERM) }

func (s *ZooKeeperServer) end(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if s.model != nil {
		s.model.end()
		return
	}
	s.signal(t, sig)
	<-s.exited
	s.proc = nil
	s.pid.Store(0)
}

// Pause stops the server's process (SIGSTOP): its ports take connections, and
// nothing answers.
func (s *ZooKeeperServer) Pause(t testing.TB) {
	t.Helper()
	if s.model != nil {
		s.model.server.Freeze()
		return
	}
	s.signal(t, syscall.SIGSTOP)
}

// Continue ends a Pause.
func (s *ZooKeeperServer) Continue(t testing.TB) {
	t.Helper()
	if s.model != nil {
		s.model.server.Thaw()
		return
	}
	s.signal(t, syscall.SIGCONT)
}

func (s *ZooKeeperServer) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if s.proc == nil {
		t.Fatalf("ZooKeeper server %d is not running", s.id)
	}
	if err := s.proc.Signal(sig); err != nil {
		t.Fatalf("signal ZooKeeper server %d: %v", s.id, err)
	}
}

// Start starts a server that was ended, on its data and ports, and does not wait
// for it: see WaitReady.
func (s *ZooKeeperServer) Start(t testing.TB) {
	t.Helper()
	if s.model != nil {
		s.model.start(t)
		return
	}
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

// WaitReady waits until the server is part of a quorum.
func (s *ZooKeeperServer) WaitReady(t testing.TB) {
	t.Helper()
	if err := s.waitReady(); err != nil {
		t.Fatal(err)
	}
}

// SecureAddrs is where the servers take clients by TLS, if they were asked to.
func (z *ZooKeeper) SecureAddrs() []string {
	var addrs []string
	for _, s := range z.servers {
		addrs = append(addrs, net.JoinHostPort(s.host, strconv.Itoa(s.secure)))
	}
	return addrs
}

// Addrs is where the servers take clients.
func (z *ZooKeeper) Addrs() []string {
	var addrs []string
	for _, s := range z.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

// Server is the i-th server, from 0 on.
func (z *ZooKeeper) Server(i int) *ZooKeeperServer { return z.servers[i] }

// Leader waits until the ensemble has a leader, and returns it and the others.
func (z *ZooKeeper) Leader(t testing.TB) (leader *ZooKeeperServer, others []*ZooKeeperServer) {
	t.Helper()
	Eventually(t, "the ZooKeeper servers have a leader", func() bool {
		leader, others = nil, nil
		for _, s := range z.servers {
			if m := s.Mode(); m == "leader" || m == "standalone" {
				leader = s
			} else {
				others = append(others, s)
			}
		}
		return leader != nil
	})
	return leader, others
}

// Close ends all servers and removes their data.
func (z *ZooKeeper) Close() error {
	for _, s := range z.servers {
		if s.model != nil {
			s.model.end()
		}
		if s.proc != nil {
			_ = s.proc.Signal(syscall.SIGKILL) // gone already is as good
			<-s.exited
		}
	}
	if z.model != nil {
		z.model.Close()
	}
	return os.RemoveAll(z.dir) // a model has none, which is no error
}
