package zkmodel

import (
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// Server is one member of an ensemble. Its methods make it fail.
type Server struct {
	e      *Ensemble
	number int

	// The ensemble's lock is held for all of these.
	up       bool
	isolated bool // from the other servers
	frozen   bool // takes connections, and answers nothing
	held     bool // applies nothing
	lag      time.Duration
	applied  int64
	tree     tree
	coming   []entry // committed, and not applied here yet
	conns    map[*conn]bool
	lose     map[Loss]int // how many more writes lose their answers
}

// Loss is how the answer to a write is lost.
type Loss int

// The ways to lose an answer. In each the connection breaks.
const (
	LostRequest Loss = iota // the write is not carried out
	LostReply               // the write is carried out
)

// Serve serves the connections that l takes, until l is closed.
func (s *Server) Serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		s.ServeConn(c)
	}
}

// ServeConn serves one connection in goroutines of its own.
func (s *Server) ServeConn(c net.Conn) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if !s.serves() && !s.frozen {
		_ = c.Close()
		return
	}
	k := newConn(s, c)
	s.conns[k] = true
	s.e.timers.Go(k.read)
	s.e.timers.Go(k.write)
}

// takesPart reports whether the server counts for a majority. The lock is held.
func (s *Server) takesPart() bool { return s.up && !s.isolated && !s.frozen }

// serves reports whether new clients get answers. The lock is held.
func (s *Server) serves() bool { return s.takesPart() && s.e.quorum() }

// Stop ends the server; its connections break.
func (s *Server) Stop() { s.setUp(false) }

// Start brings a stopped server back, with all that was committed meanwhile.
func (s *Server) Start() { s.setUp(true) }

func (s *Server) setUp(up bool) {
	s.change(func() {
		s.up = up
		s.dropAll()
	})
}

// change lets fn change how the server takes part. One that does again has all
// that was committed meanwhile.
func (s *Server) change(fn func()) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	had := s.e.quorum()
	before := s.takesPart()
	fn()
	if s.takesPart() && !before {
		s.coming, s.tree, s.applied = nil, s.e.tree.clone(), s.e.zxid
	}
	s.e.membersChanged()
	if !had && s.e.quorum() {
		s.e.hearAll()
	}
}

// Isolate cuts the server from the others. It answers reads from what it has, and
// takes writes that are never carried out, until it notices, after notice; then
// its connections break and it takes none.
func (s *Server) Isolate(notice time.Duration) {
	s.change(func() { s.isolated = true })
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.after(notice, func() {
		if s.isolated {
			s.dropAll()
		}
	})
}

// Heal ends Isolate.
func (s *Server) Heal() {
	s.change(func() {
		s.isolated = false
		s.dropAll()
	})
}

// Freeze has the server take connections and answer nothing, as when its process
// is stopped.
func (s *Server) Freeze() { s.change(func() { s.frozen = true }) }

// Thaw ends Freeze. What was asked meanwhile is lost with its connections.
func (s *Server) Thaw() {
	s.change(func() {
		s.frozen = false
		s.dropAll()
	})
}

// SetLag has each transaction reach the server's state so long after it was
// committed.
func (s *Server) SetLag(d time.Duration) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.lag = d
}

// Hold stops the server's state where it is; it serves what it has. Release ends it.
func (s *Server) Hold() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.held = true
}

// Release ends Hold and applies what came meanwhile.
func (s *Server) Release() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.held = false
	s.applyUpTo(s.e.zxid)
}

// Break breaks all connections; clients may come back at once.
func (s *Server) Break() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.dropAll()
}

// Lose breaks the connection on which a write comes, for the next n writes.
func (s *Server) Lose(how Loss, n int) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	if s.lose == nil {
		s.lose = map[Loss]int{}
	}
	s.lose[how] = n
}

// loses reports whether the present write is lost so, and counts it.
func (s *Server) loses(how Loss) bool {
	if s.lose[how] == 0 {
		return false
	}
	s.lose[how]--
	return true
}

// Watches is how many watches clients have set here.
func (s *Server) Watches() int { return len(s.Watched()) }

// Watched is what clients watch here: a client's host and a path for each watch.
func (s *Server) Watched() (all []string) {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for c := range s.conns {
		for _, paths := range c.watches {
			for path := range paths {
				all = append(all, c.session.from+" "+path)
			}
		}
	}
	return all
}

// LoseWatches forgets what clients watch here, and tells nobody: they wait for
// events that do not come.
func (s *Server) LoseWatches() {
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	for c := range s.conns {
		for _, paths := range c.watches {
			clear(paths)
		}
	}
}

func (s *Server) dropAll() {
	for c := range s.conns {
		c.drop()
	}
}

// receive takes a committed transaction. The lock is held.
func (s *Server) receive(en entry) {
	if !s.takesPart() {
		return // it catches up when it does again
	}
	s.coming = append(s.coming, en)
	switch {
	case s.held:
	case s.lag > 0:
		s.e.after(s.lag, func() {
			if !s.held {
				s.applyUpTo(en.zxid)
			}
		})
	default:
		s.applyUpTo(en.zxid)
	}
}

// applyUpTo brings the state to zxid, tells watches, and answers who waited.
func (s *Server) applyUpTo(zxid int64) {
	for len(s.coming) > 0 && s.coming[0].zxid <= zxid {
		en := s.coming[0]
		s.coming = s.coming[1:]
		s.tree, s.applied = en.tree, en.zxid
		for _, ev := range en.events {
			for c := range s.conns {
				c.notify(ev)
			}
		}
		for c := range s.conns {
			c.answer()
		}
	}
}

// watchKinds are the kinds of watches, as clients set them.
type watchKind int

const (
	watchData  watchKind = iota // set by getData
	watchExist                  // by exists
	watchChild                  // by getChildren
	watchKinds
)

// touches are the watches that an event sets off.
func touches(kind zk.EventType) []watchKind {
	switch kind {
	case zk.EventNodeCreated, zk.EventNodeDataChanged:
		return []watchKind{watchData, watchExist}
	case zk.EventNodeDeleted:
		return []watchKind{watchData, watchExist, watchChild}
	default:
		return []watchKind{watchChild}
	}
}
