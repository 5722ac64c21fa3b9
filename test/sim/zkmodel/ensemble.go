package zkmodel

import (
	"crypto/sha1" //nolint:gosec // as ZooKeeper's scheme digest has it
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Config says how an ensemble is made.
type Config struct {
	Servers int           // at least 1
	Tick    time.Duration // a session's time-out is 2 to 20 of them; 0: 500 ms
	Seed    uint64        // of session numbers and passwords
	// Election is how long the ensemble is without a leader when it has lost its
	// leader; 0: one tick.
	Election time.Duration
}

// Ensemble is a model of several ZooKeeper servers. Its methods, and those of its
// servers, are safe for concurrent use and do not wait.
type Ensemble struct {
	cfg     Config
	servers []*Server

	mu       sync.Mutex
	rand     *rand.Rand
	zxid     int64
	tree     tree // of the leader
	sessions map[int64]*session
	asked    map[Asked]int
	leader   *Server
	paused   bool // a leader is being elected
	closed   bool
	ticker   *time.Timer
	timers   sync.WaitGroup // running callbacks of timers, and goroutines of connections
}

// session is what the ensemble knows of one client.
type session struct {
	id       int64
	password []byte
	timeout  time.Duration
	heard    time.Time
	conn     *conn  // where it is now; nil if nowhere
	from     string // the host of its last connection
}

// entry is a committed transaction on its way to a server.
type entry struct {
	zxid   int64
	tree   tree
	events []event
}

// New makes an ensemble whose servers are up and serve. Close ends it.
func New(cfg Config) *Ensemble {
	if cfg.Tick <= 0 {
		cfg.Tick = 500 * time.Millisecond
	}
	if cfg.Election <= 0 {
		cfg.Election = cfg.Tick
	}
	e := &Ensemble{cfg: cfg, tree: newTree(), sessions: map[int64]*session{}, asked: map[Asked]int{}, rand: rand.New(rand.NewPCG(cfg.Seed, 0))} //nolint:gosec // reproducible
	for i := range max(cfg.Servers, 1) {
		e.servers = append(e.servers, &Server{e: e, number: i + 1, up: true, tree: e.tree.clone(), conns: map[*conn]bool{}})
	}
	e.leader = e.servers[0]
	e.mu.Lock() // the first tick may come before the ticker is kept
	defer e.mu.Unlock()
	e.ticker = time.AfterFunc(cfg.Tick/2, e.expireSilent)
	return e
}

// Server returns the i-th server, from 0.
func (e *Ensemble) Server(i int) *Server { return e.servers[i] }

// Servers is how many there are.
func (e *Ensemble) Servers() int { return len(e.servers) }

// Close breaks all connections and waits until nothing of the ensemble runs.
func (e *Ensemble) Close() {
	e.mu.Lock()
	e.closed = true
	e.ticker.Stop()
	for _, s := range e.servers {
		s.dropAll()
	}
	e.mu.Unlock()
	e.timers.Wait()
}

// Elect has the ensemble without a leader for a while: all connections break, and
// none is taken. The time-outs of all sessions begin again after it.
func (e *Ensemble) Elect(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.elect(d)
}

func (e *Ensemble) elect(d time.Duration) {
	e.paused = true
	e.dropAll()
	e.after(d, func() {
		e.paused = false
		e.membersChanged()
		e.hearAll()
	})
}

// dropAll breaks the connections of all servers that know what happens.
func (e *Ensemble) dropAll() {
	for _, s := range e.servers {
		if !s.isolated && !s.frozen {
			s.dropAll()
		}
	}
}

// Leader is the server that leads, nil if none does.
func (e *Ensemble) Leader() *Server {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.quorum() {
		return nil
	}
	return e.leader
}

// Expire ends a session now, as if it had been silent for its time-out.
func (e *Ensemble) Expire(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.endSession(id)
}

// Sessions are the numbers of the sessions that live.
func (e *Ensemble) Sessions() (ids []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.sessions {
		ids = append(ids, id)
	}
	return ids
}

// SessionsFrom are those whose last connection came from a host.
func (e *Ensemble) SessionsFrom(host string) (ids []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, s := range e.sessions {
		if s.from == host {
			ids = append(ids, id)
		}
	}
	return ids
}

// Asked is a kind of request from a host: Op is its number in ZooDefs.OpCode.
type Asked struct {
	From string
	Op   int32
}

// Requests counts what all clients have asked so far, pings included.
func (e *Ensemble) Requests() map[Asked]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.asked)
}

// Nodes is how many znodes there are, the root included.
func (e *Ensemble) Nodes() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tree.nodes.Len()
}

// after calls fn later, with the lock held, unless the ensemble is closed by then.
func (e *Ensemble) after(d time.Duration, fn func()) {
	e.timers.Add(1)
	time.AfterFunc(d, func() {
		defer e.timers.Done()
		e.mu.Lock()
		defer e.mu.Unlock()
		if !e.closed {
			fn()
		}
	})
}

// quorum reports whether a majority of servers is up and together. The lock is held.
func (e *Ensemble) quorum() bool {
	n := 0
	for _, s := range e.servers {
		if s.takesPart() {
			n++
		}
	}
	return !e.paused && !e.closed && 2*n > len(e.servers)
}

// expireSilent ends the sessions that were silent for their time-outs.
func (e *Ensemble) expireSilent() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	e.ticker.Reset(e.cfg.Tick / 2)
	if !e.quorum() {
		return
	}
	for id, s := range e.sessions {
		if time.Since(s.heard) > s.timeout {
			e.endSession(id)
		}
	}
}

// hearAll begins all time-outs again, as a new leader does. The lock is held.
func (e *Ensemble) hearAll() {
	for _, s := range e.sessions {
		s.heard = time.Now()
	}
}

// membersChanged is called when a server came or went: the ensemble may need
// another leader, or have no majority any more. The lock is held.
func (e *Ensemble) membersChanged() {
	if !e.quorum() {
		e.dropAll()
		return
	}
	if e.leader.takesPart() {
		return
	}
	for _, s := range e.servers {
		if s.takesPart() {
			e.leader = s
			break
		}
	}
	e.elect(e.cfg.Election)
}

// begin makes a transaction. The lock is held.
func (e *Ensemble) begin(session int64, who []zk.ACL) *change {
	e.zxid++
	return &change{tree: e.tree.clone(), zxid: e.zxid, millis: time.Now().UnixMilli(), session: session, who: who}
}

// commit makes the outcome of a transaction the ensemble's. The lock is held.
func (e *Ensemble) commit(c *change) {
	e.tree = c.tree
	e.spread(c)
}

// spread sends a transaction to the servers. One that failed takes a zxid, too.
func (e *Ensemble) spread(c *change) {
	for _, s := range e.servers {
		s.receive(entry{zxid: c.zxid, tree: e.tree.clone(), events: c.events})
	}
}

// endSession removes a session with its nodes. The lock is held.
func (e *Ensemble) endSession(id int64) {
	s := e.sessions[id]
	if s == nil {
		return
	}
	delete(e.sessions, id)
	c := e.begin(id, nil)
	c.closeSession(id)
	e.commit(c)
	if s.conn != nil {
		s.conn.drop()
	}
}

func (e *Ensemble) newSession(asked time.Duration) *session {
	s := &session{id: int64(e.rand.Uint64() >> 1), password: make([]byte, 16), heard: time.Now()}
	for i := range s.password {
		s.password[i] = byte(e.rand.Uint32())
	}
	s.timeout = min(max(asked, 2*e.cfg.Tick), 20*e.cfg.Tick)
	e.sessions[s.id] = s
	e.commit(e.begin(s.id, nil))
	return s
}

// identity is who has shown a user and a password.
func identity(scheme string, auth []byte) (zk.ACL, zk.ErrCode) {
	user, _, found := strings.Cut(string(auth), ":")
	if scheme != "digest" || !found {
		return zk.ACL{}, authFailed
	}
	sum := sha1.Sum(auth) //nolint:gosec // as ZooKeeper's scheme digest has it
	return zk.ACL{Scheme: scheme, ID: fmt.Sprintf("%s:%s", user, base64.StdEncoding.EncodeToString(sum[:]))}, ok
}
