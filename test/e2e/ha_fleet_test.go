package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/test/env"
)

// sessionTimeout is that of the namenodes under test, the shortest that is
// recommended with ZooKeeper's tickTime of 500 ms.
const sessionTimeout = 2 * time.Second

// zookeepers are three servers that tests share; each uses a namespace of its
// own. A test that harms servers starts its own.
var zookeepers struct {
	once sync.Once
	z    *env.ZooKeeper
	err  error
}

func sharedZooKeeper(t testing.TB) *env.ZooKeeper {
	t.Helper()
	zookeepers.once.Do(func() { zookeepers.z, zookeepers.err = env.RunZooKeeper(3) })
	if zookeepers.err != nil {
		t.Fatal(zookeepers.err)
	}
	return zookeepers.z
}

func endZooKeeper() {
	if zookeepers.z != nil {
		_ = zookeepers.z.Close() // the folder goes with the run's
	}
}

// haTurn lets three fleets run at a time: more would only find out
// how slow this machine is.
var haTurn = make(chan struct{}, 3)

// fleet is several namenodes of one namespace, each a process, with real
// ZooKeeper servers under them and their blocks in a shared folder. All their
// connections pass links of this process, which can be cut.
//
// Commands (run, try, fails, write, begin) are given the whole list.
type fleet struct {
	*namenode // only to run commands with
	zk        *env.ZooKeeper
	name      string // of the namespace
	members   []*member
	clients   *env.Machine // where clients are; nil: this one
}

// member is one namenode of a fleet.
type member struct {
	*namenode
	name    string
	zk      []*link      // to each ZooKeeper server
	clients *link        // from clients
	blocks  *link        // from clients, to its blocks
	machine *env.Machine // nil: this one, and the links are there
	direct  string       // its address for this process, past everything that may be cut
}

// fleetConfig says what is unusual about one; see startFleet.
type fleetConfig struct {
	n       int             // namenodes; 3
	zk      *env.ZooKeeper  // the shared one
	only    func(i int) int // the one ZooKeeper server that a namenode knows; all
	blocks  string          // URL; a shared folder
	flags   []string
	env     []string
	secure  bool                 // namenodes speak TLS to ZooKeeper
	via     func(i int) []string // what starts a namenode
	program string               // of all namenodes, and of the format; the one under test
	direct  bool                 // namenodes reach ZooKeeper without links
	lab     *env.Lab             // each on a machine nnN of its own, clients on one of that name; no links
}

// startFleet starts one and waits until a namenode is active and the others
// follow.
func startFleet(ctx context.Context, t testing.TB, mods ...func(*fleetConfig)) *fleet {
	t.Helper()
	haTurn <- struct{}{}
	t.Cleanup(func() { <-haTurn })
	cfg := fleetConfig{n: 3}
	for _, mod := range mods {
		mod(&cfg)
	}
	if cfg.zk == nil {
		cfg.zk = sharedZooKeeper(t)
	}
	dir := t.TempDir()
	if cfg.blocks == "" {
		cfg.blocks = "file://" + filepath.Join(dir, "blocks")
	}
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	name = fmt.Sprintf("%s-%d", name[:min(len(name), 40)], os.Getpid())
	e := &fleet{zk: cfg.zk, name: name}
	var addrs []string
	for i := range cfg.n {
		m := &member{name: fmt.Sprintf("namenode %d", i)}
		m.namenode = newNamenode(t, filepath.Join(dir, fmt.Sprint("data", i)))
		m.env, m.program = cfg.env, cfg.program
		servers := cfg.zk.Addrs()
		if cfg.secure {
			servers = cfg.zk.SecureAddrs()
		}
		if cfg.only != nil {
			servers = servers[cfg.only(i):][:1]
		}
		if cfg.lab != nil {
			m.machine = cfg.lab.Machine(fmt.Sprint("nn", i))
			m.listen, m.http, m.via, m.trusts = m.machine.Addr(8020), m.machine.Addr(8021), m.machine.Via(), true
			m.direct = "unix:" + cfg.lab.Observer().Way(m.listen)
			addrs = append(addrs, m.listen)
		} else {
			m.linked(servers, !cfg.direct)
			addrs = append(addrs, m.clients.addr())
		}
		m.flags = append(m.flags, "--zookeeper", strings.Join(servers, ","), "--namespace", name, "--session-timeout", sessionTimeout.String(), "--delete-after", "1ms", "--blocks", cfg.blocks)
		m.flags = append(m.flags, cfg.flags...)
		if cfg.via != nil {
			m.via = cfg.via(i)
		}
		e.members = append(e.members, m)
	}
	e.namenode = &namenode{t: t, listen: strings.Join(addrs, ",")}
	if cfg.lab != nil {
		e.clients = cfg.lab.Machine("clients")
		e.from = e.clients.Via()
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, m := range e.members {
				if m.process != nil {
					t.Logf("%s (%s): %s", m.name, m.listen, tailOf(m.err.String()))
				}
			}
		}
	})
	e.members[0].format(ctx)
	for _, m := range e.members {
		m.start(ctx)
	}
	e.active(ctx)
	return e
}

// linked puts links between the member and clients, and ZooKeeper's servers if
// they may be cut too.
func (m *member) linked(servers []string, cut bool) {
	m.direct = m.listen
	m.clients, m.blocks = startLink(m.t, m.listen), startLink(m.t, m.http)
	m.flags = []string{"--advertise", m.clients.addr(), "--advertise-http", m.blocks.addr()}
	for i := range servers {
		if cut {
			m.zk = append(m.zk, startLink(m.t, servers[i]))
			servers[i] = m.zk[i].addr()
		}
	}
}

// role is what a member says that it is, asked past its link; "" if it does not
// answer within a second.
func (m *member) role(ctx context.Context) string { return m.look(ctx).Role }

// look is a member's status.
func (m *member) look(ctx context.Context) client.NamenodeStatus {
	list, err := client.QueryStatus(ctx, client.Config{Namenodes: []string{m.direct}, Timeout: time.Second})
	if err != nil || list[0].Err != nil {
		return client.NamenodeStatus{}
	}
	return list[0]
}

// active waits until exactly one of the members that run says that it is
// active, and returns it.
func (e *fleet) active(ctx context.Context) *member {
	e.t.Helper()
	var found *member
	eventually(ctx, e.t, "one namenode is active", func() bool {
		found = nil
		for _, m := range e.members {
			if m.process == nil || m.ended() || m.role(ctx) != "active" {
				continue
			}
			if found != nil {
				return false
			}
			found = m
		}
		return found != nil
	})
	return found
}

// successor waits until another member than this one is active.
func (e *fleet) successor(ctx context.Context, of *member) *member {
	e.t.Helper()
	var found *member
	eventually(ctx, e.t, "another namenode than "+of.name+" is active", func() bool {
		for _, m := range e.members {
			if m != of && !m.ended() && m.role(ctx) == "active" {
				found = m
				return true
			}
		}
		return false
	})
	return found
}

// failover makes a member, who is active, hand over by hand. A busy machine may
// have had it succeeded, and so elected again by what was meant for it.
func (e *fleet) failover(ctx context.Context, of *member) *member {
	e.t.Helper()
	for {
		e.run(ctx, "admin", "failover")
		if a := e.active(ctx); a != of {
			return a
		}
	}
}

// standby waits until a member is one.
func (m *member) standby(ctx context.Context) {
	m.t.Helper()
	eventually(ctx, m.t, m.name+" is a standby", func() bool { return m.role(ctx) == "standby" })
}

// another is a member that is not this one.
func (e *fleet) another(than *member) *member {
	return e.members[slices.IndexFunc(e.members, func(m *member) bool { return m != than })]
}

// settled waits until one member is active and all others are standbys that
// have all that it has. Which one it is may change meanwhile: one whose election
// session ran out continues under its term until it hears of that.
func (e *fleet) settled(ctx context.Context) *member {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	defer func() {
		if e.t.Failed() { // before the test's context ends, and the members with it
			e.stacks()
		}
	}()
	var a *member
	eventually(ctx, e.t, "all standbys have followed", func() bool {
		a = e.active(ctx)
		want := a.look(ctx)
		for _, m := range e.members {
			if s := m.look(ctx); m != a && (s.Role != "standby" || s.TxID < want.TxID) {
				return false
			}
		}
		return want.Role == "active"
	})
	return a
}

// stacks ends the members, for a test that has failed, and logs what their
// goroutines did, a line each.
func (e *fleet) stacks() {
	e.t.Helper()
	for _, m := range e.members {
		if m.process == nil || m.ended() {
			e.t.Logf("%s has ended", m.name)
			continue
		}
		e.t.Logf("%s looks like this: %+v", m.name, m.look(context.Background())) //nolint:usetesting // the context of the test is over
		had := len(m.err.String())
		if err := m.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
			e.t.Logf("%s: %v", m.name, err)
			continue
		}
		<-m.done
		all := m.err.String()
		e.t.Logf("%s:\n%s", m.name, brief(all[had:]))
		m.err.cut(had)
	}
}

var (
	goroutineLine = regexp.MustCompile(`(?m)^goroutine \d+.*\[(.*)\]:$`)
	frameLine     = regexp.MustCompile(`(?m)^(?:github\.com/leasefs/leasefs|github\.com/go-zookeeper)/(\S+)\(`)
)

// brief is the stacks of a program that was ended by SIGQUIT, a line each: what
// it waits for, and the innermost frames of this project and of ZooKeeper's client.
func brief(stacks string) string {
	var out strings.Builder
	for one := range strings.SplitSeq(stacks, "\n\n") {
		head, frames := goroutineLine.FindStringSubmatch(one), frameLine.FindAllStringSubmatch(one, 8)
		if head == nil || frames == nil {
			continue
		}
		fmt.Fprintf(&out, "[%s]", head[1])
		for _, f := range frames {
			fmt.Fprintf(&out, " < %s", f[1])
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func (m *member) cont() { m.t.Helper(); m.signal(syscall.SIGCONT) }

// fromZooKeeper cuts the member off, silently: nothing passes, and no connection
// ends.
func (m *member) fromZooKeeper() {
	for _, l := range m.zk {
		l.freeze()
	}
}

func (m *member) toZooKeeper() {
	for _, l := range m.zk {
		l.thaw()
	}
}

func (m *member) fromClients() { m.clients.freeze(); m.blocks.freeze() }

func (m *member) toClients() { m.clients.thaw(); m.blocks.thaw() }

// library connects a client of its own session, which in a lab uses no blocks.
func (e *fleet) library(ctx context.Context, mods ...func(*client.Config)) *client.FS {
	e.t.Helper()
	cfg := client.Config{Namenodes: strings.Split(e.listen, ",")}
	if e.clients != nil {
		cfg.DialOptions = []grpc.DialOption{grpc.WithContextDialer(e.clients.DialContext)}
	}
	for _, mod := range mods {
		mod(&cfg)
	}
	fsys, err := client.New(ctx, cfg)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { _ = fsys.Close() })
	return fsys
}

// roles is the roles of all, as "leasefs status" shows them.
func (e *fleet) roles(ctx context.Context) string {
	e.t.Helper()
	var all []string
	for line := range strings.Lines(e.try(ctx, "", "--timeout", "2s", "status", "--json").out) {
		var s status
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			e.t.Fatal(err)
		}
		all = append(all, s.Role)
	}
	return strings.Join(all, " ")
}

// link carries TCP connections to one address. Frozen, it takes connections and
// bytes and passes nothing on, like a network that drops packets; what was sent
// meanwhile arrives when it thaws.
type link struct {
	l  net.Listener
	to string
	wg sync.WaitGroup

	mu     sync.Mutex
	frozen chan struct{} // closed at the thaw; nil: it flows
	conns  map[net.Conn]struct{}
	closed bool
}

func startLink(t testing.TB, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{l: l, to: to, conns: map[net.Conn]struct{}{}}
	k.wg.Go(k.accept)
	t.Cleanup(k.end)
	return k
}

func (k *link) addr() string { return k.l.Addr().String() }

func (k *link) accept() {
	for {
		c, err := k.l.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.carry(c) })
	}
}

func (k *link) carry(c net.Conn) {
	defer k.forget(c)
	if !k.keep(c) || !k.flows() {
		return
	}
	up, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer k.forget(up)
	if !k.keep(up) {
		return
	}
	k.wg.Go(func() { k.pump(c, up) })
	k.pump(up, c)
}

func (k *link) pump(to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }() // that they end is all
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if !k.flows() {
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// flows waits while the link is frozen; false: it ends.
func (k *link) flows() bool {
	for {
		k.mu.Lock()
		ch, closed := k.frozen, k.closed
		k.mu.Unlock()
		if closed || ch == nil {
			return !closed
		}
		<-ch
	}
}

func (k *link) keep(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	k.conns[c] = struct{}{}
	return true
}

func (k *link) forget(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

func (k *link) freeze() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.frozen == nil {
		k.frozen = make(chan struct{})
	}
}

func (k *link) thaw() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.frozen != nil {
		close(k.frozen)
		k.frozen = nil
	}
}

// sever breaks all connections; new ones can be made.
func (k *link) sever() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for c := range k.conns {
		_ = c.Close()
	}
}

func (k *link) end() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	_ = k.l.Close()
	k.thaw()
	k.sever()
	k.wg.Wait()
}
