package election

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/turn"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// Member is what a namenode says of itself to the others.
type Member struct {
	Address string `json:"address"`           // of its gRPC service: where clients are sent
	HTTP    string `json:"http,omitempty"`    // the URL of its pages; of older releases HOST:PORT
	Host    string `json:"host,omitempty"`    // for people
	Pid     int    `json:"pid,omitempty"`     // for people
	Version string `json:"version,omitempty"` // of leasefs
	Level   uint64 `json:"level,omitempty"`   // the newest feature level that it knows; 0: its release says nothing of levels
	// Report is how well it could serve; nil: its release does not say.
	Report *Report `json:"report,omitempty"`

	Number   int64 `json:"-"` // the order of joining
	Session  int64 `json:"-"` // of ZooKeeper
	Elected  bool  `json:"-"` // it is the active one, or about to be
	JoinedMS int64 `json:"-"` // when it joined or moved back: Unix milliseconds, by ZooKeeper's clock
}

// Report is what a namenode says of how well it could serve.
type Report struct {
	TxID  uint64 `json:"txid,omitempty"`  // the last change that it has
	Unfit string `json:"unfit,omitempty"` // why another one should serve, in words; empty: it is fit
}

// Config says where namenodes meet.
type Config struct {
	ZooKeeper zkconn.Config
	Path      string // absolute, for example /leasefs/NAME/election; made if missing
	Self      Member
	Logger    *slog.Logger // nil: slog.Default()
}

// Candidacy is one namenode's part in the election. Its methods are safe for
// concurrent use.
type Candidacy struct {
	cfg  Config
	log  *slog.Logger
	s    *zkconn.Session
	mark string // begins the names of our nodes

	changing turn.Turn // of our node; waiting for ZooKeeper may take long, and other callers may have less time
	self     Member
	own      candidate // our node, if it was there when it was last written

	watching sync.Once
	changes  chan struct{} // one token: see Changes
}

// ErrLost says that the session is over, or the node gone, and with it the
// candidacy: join again.
var ErrLost = errors.New("election: out")

const (
	markPrefix = "_c_" // as Curator and go-zookeeper name protected nodes
	seqDigits  = 10
)

// Join opens a session and makes the namenode's node. It tries until ctx ends,
// over new sessions if need be.
func Join(ctx context.Context, cfg Config) (*Candidacy, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	for {
		c, err := join(ctx, cfg)
		if err == nil || ctx.Err() != nil || !errors.Is(err, ErrLost) {
			return c, err
		}
		cfg.Logger.Warn("the session ended while this namenode joined the election; joining again", "cause", err)
	}
}

func join(ctx context.Context, cfg Config) (*Candidacy, error) {
	c := &Candidacy{cfg: cfg, log: cfg.Logger, self: cfg.Self, changing: turn.New(), changes: make(chan struct{}, 1)}
	var err error
	if c.s, err = zkconn.Dial(ctx, cfg.ZooKeeper); err != nil {
		return nil, fmt.Errorf("join the election: %w", err)
	}
	var mark [16]byte
	_, _ = rand.Read(mark[:]) // never fails
	c.mark = markPrefix + hex.EncodeToString(mark[:]) + "-"
	if err := c.enter(ctx); err != nil {
		_ = c.s.Close()
		return nil, fmt.Errorf("join the election at %s: %w", cfg.Path, err)
	}
	return c, nil
}

func (c *Candidacy) enter(ctx context.Context) error {
	if err := c.retry(ctx, func() error { return c.s.EnsurePath(ctx, c.cfg.Path) }); err != nil {
		return err
	}
	data, err := json.Marshal(c.self)
	if err != nil {
		return err
	}
	return c.retry(ctx, func() error {
		own, _, err := c.look(ctx)
		if err != nil || own.name != "" {
			return err // it was made, and the answer lost
		}
		_, err = c.s.Create(ctx, c.cfg.Path+"/"+c.mark, data, zk.FlagEphemeral|zk.FlagSequence)
		return err
	})
}

// retry calls fn until it ends with anything but a lost answer, on this session.
func (c *Candidacy) retry(ctx context.Context, fn func() error) error {
	err := c.s.Retry(ctx, fn)
	if c.s.Err() != nil {
		return c.out()
	}
	return err
}

func (c *Candidacy) out() error { return fmt.Errorf("%w: %w", ErrLost, c.s.Err()) }

// candidate is a node of the election.
type candidate struct {
	name   string
	number int64
}

// parse takes a node's name apart. ok is false for what is not a candidate.
func parse(name string) (n candidate, ok bool) {
	if !strings.HasPrefix(name, markPrefix) {
		return n, false
	}
	i := strings.LastIndexByte(name, '-')
	if i < 0 || len(name)-i-1 < seqDigits {
		return n, false
	}
	if i > 0 && name[i-1] == '-' {
		i-- // ZooKeeper's number has overflowed and is negative
	}
	number, err := strconv.ParseInt(name[i+1:], 10, 64)
	return candidate{name, number}, err == nil
}

// list returns the candidates, the elected one first. What it sees is at least
// as new as the call.
func list(ctx context.Context, s *zkconn.Session, path string) ([]candidate, error) {
	if err := s.Sync(ctx, path); err != nil {
		return nil, err
	}
	names, err := s.Children(ctx, path)
	if err != nil {
		return nil, err
	}
	var all []candidate
	for _, name := range names {
		if n, ok := parse(name); ok {
			all = append(all, n)
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return int(min(max(a.number-b.number, -1), 1))
	})
	return all, nil
}

// look returns our node and the one before it, and removes what is left of an
// earlier attempt of ours to make it.
func (c *Candidacy) look(ctx context.Context) (own, before candidate, err error) {
	all, err := list(ctx, c.s, c.cfg.Path)
	if err != nil {
		return own, before, err
	}
	var last candidate
	for _, n := range all {
		switch {
		case !strings.HasPrefix(n.name, c.mark):
			last = n
		case own.name == "":
			own, before = n, last
		default:
			err := c.s.Delete(ctx, c.cfg.Path+"/"+n.name, -1)
			if err != nil && !errors.Is(err, zk.ErrNoNode) {
				return own, before, err
			}
		}
	}
	return own, before, nil
}

// Wait returns when this namenode is elected, with ErrLost when it is out, or
// with ctx's error. It may be called again.
func (c *Candidacy) Wait(ctx context.Context) error {
	for {
		var gone <-chan zk.Event
		elected := false
		err := c.retry(ctx, func() (err error) {
			elected, gone, err = c.check(ctx)
			return err
		})
		if err != nil || elected {
			return err
		}
		if gone == nil {
			continue // the one before ended while we looked
		}
		select {
		case <-gone:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.s.Done():
			return c.out()
		}
	}
}

func (c *Candidacy) check(ctx context.Context) (elected bool, gone <-chan zk.Event, err error) {
	own, before, err := c.look(ctx)
	switch {
	case err != nil:
		return false, nil, err
	case own.name == "":
		return false, nil, c.removed()
	case before.name == "":
		return true, nil, nil
	}
	// A watch on a node that is gone would stay: no other gets its name. A node of a
	// session has no children: this watch is set off by its end alone, not by reports.
	_, ch, err := c.s.ChildrenW(ctx, c.cfg.Path+"/"+before.name)
	if errors.Is(err, zk.ErrNoNode) {
		return false, nil, nil
	}
	return false, ch, err
}

func (c *Candidacy) removed() error {
	return fmt.Errorf("%w: somebody has removed this namenode's node %s/%s…", ErrLost, c.cfg.Path, c.mark)
}

// Report tells the others how well this namenode could serve: Members has it. Each
// call is a write of ZooKeeper's. It ends with ErrLost when the namenode is out, or
// with ctx's error; then the others may know of the report or not.
func (c *Candidacy) Report(ctx context.Context, r Report) error {
	return c.change(ctx, r, func(own candidate, data []byte) error {
		_, err := c.s.Set(ctx, c.cfg.Path+"/"+own.name, data, -1)
		if err == nil {
			c.own = own
		}
		return err
	})
}

// MoveBack makes this namenode the last in line, with a new report. It never leaves
// the line: its old node is replaced by the new one in one step. One
// that is elected may move back as long as it has begun no term; Wait then says when
// it is elected again. Errors are those of Report.
func (c *Candidacy) MoveBack(ctx context.Context, r Report) error {
	var from candidate
	return c.change(ctx, r, func(own candidate, data []byte) error {
		if from.name == "" {
			from = own
		}
		if own != from {
			return nil // it was done, and the answer lost
		}
		_, err := c.s.Multi(ctx,
			&zk.CreateRequest{Path: c.cfg.Path + "/" + c.mark, Data: data, Acl: c.s.ACL(), Flags: zk.FlagEphemeral | zk.FlagSequence},
			&zk.DeleteRequest{Path: c.cfg.Path + "/" + own.name, Version: -1})
		return err
	})
}

// change calls write with our node and what is to be in it, until no answer is lost.
func (c *Candidacy) change(ctx context.Context, r Report, write func(own candidate, data []byte) error) error {
	unlock, err := c.changing.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	c.self.Report = &r
	data, err := json.Marshal(c.self)
	if err != nil {
		return err
	}
	return c.retry(ctx, func() (err error) {
		own := c.own
		if c.own = (candidate{}); own.name == "" {
			own, _, err = c.look(ctx)
		}
		switch {
		case err != nil:
			return err
		case own.name == "":
			return c.removed()
		}
		err = write(own, data)
		if errors.Is(err, zk.ErrNoNode) {
			err = fmt.Errorf("%w: %w", zkconn.ErrLost, err) // an earlier try has moved it, or somebody removed it: look again
		}
		return err
	})
}

// Lost is closed when the session is over: this namenode is not elected, and
// its node is gone. Window says more exactly until when it may answer.
func (c *Candidacy) Lost() <-chan struct{} { return c.s.Done() }

// SessionID is ZooKeeper's number of the session. It never changes.
func (c *Candidacy) SessionID() int64 { return c.s.ID() }

// Connected reports whether the session has a connection now.
func (c *Candidacy) Connected() bool { return c.s.Connected() }

// Resign takes this namenode out, so that the next one is elected at once. It is
// the last step of a clean hand-over: see the package comment. Without a
// connection ZooKeeper removes the node when the session's time is over.
func (c *Candidacy) Resign() error { return c.s.Close() }

// Changes has a token when a namenode may have joined, left or moved since the
// token before was taken, and one at first: who looks (Members) after each token
// misses nothing. Several changes may make one token. Reports make none.
func (c *Candidacy) Changes() <-chan struct{} {
	c.watching.Do(func() { go c.watch() })
	return c.changes
}

// rewatchPause is before a watch is set that ZooKeeper has refused: somebody has
// removed the election's node, or forbidden to list it.
const rewatchPause = time.Second

// watch keeps one watch on all candidates until the session is over.
func (c *Candidacy) watch() {
	ctx := context.Background() // calls end with the session
	for {
		var changed <-chan zk.Event
		err := c.retry(ctx, func() (err error) {
			_, changed, err = c.s.ChildrenW(ctx, c.cfg.Path)
			return err
		})
		var again <-chan time.Time
		if err != nil {
			again = time.After(rewatchPause)
		} else {
			select { // not before: what comes behind a look sets off the watch
			case c.changes <- struct{}{}:
			default: // the token before was not taken yet
			}
		}
		select {
		case <-changed:
		case <-again:
		case <-c.s.Done():
			return
		}
	}
}

// Members lists the namenodes that have joined, the elected one first.
func (c *Candidacy) Members(ctx context.Context) ([]Member, error) {
	var all []Member
	err := c.retry(ctx, func() (err error) {
		all, err = Members(ctx, c.s, c.cfg.Path)
		return err
	})
	return all, err
}

// Members lists the namenodes that have joined an election, the elected one
// first, over a session of the caller's. An election that nobody ever joined has
// none.
func Members(ctx context.Context, s *zkconn.Session, path string) (all []Member, err error) {
	// A node that is gone before it was read may have moved back: look again.
	for range 3 {
		var gone bool
		if all, gone, err = lookAtAll(ctx, s, path); err != nil || !gone {
			break
		}
	}
	return all, err
}

// lookAtAll reads the nodes one by one; gone reports that one went meanwhile.
func lookAtAll(ctx context.Context, s *zkconn.Session, path string) (all []Member, gone bool, err error) {
	nodes, err := list(ctx, s, path)
	if errors.Is(err, zk.ErrNoNode) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	seen := map[int64]bool{}
	for _, n := range nodes {
		data, stat, err := s.Get(ctx, path+"/"+n.name)
		if errors.Is(err, zk.ErrNoNode) {
			gone = true
			continue
		}
		if err != nil {
			return nil, false, err
		}
		if seen[stat.EphemeralOwner] {
			continue // a second node of one session, about to be removed
		}
		seen[stat.EphemeralOwner] = true
		var m Member
		if err := json.Unmarshal(data, &m); err != nil {
			return nil, false, fmt.Errorf("election: node %s/%s does not say what it should: %w", path, n.name, err)
		}
		m.Number, m.Session, m.Elected, m.JoinedMS = n.number, stat.EphemeralOwner, len(all) == 0, stat.Ctime
		all = append(all, m)
	}
	return all, gone, nil
}
