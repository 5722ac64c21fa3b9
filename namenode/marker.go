package namenode

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	zookeeper "github.com/go-zookeeper/zk"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/zkconn"
)

// markerObject is the named object that says whose a block store is.
const markerObject = "namespace"

// checkMarker makes sure that the block store is this namespace's. That of several
// namenodes was marked by its format; a namenode alone marks that of a new
// namespace. A folder that one namenode has for itself has a marker of its own
// kind: see local.Format.
func (s *Server) checkMarker(ctx context.Context, objects blockstore.Objects) error {
	if s.cfg.HA == nil && s.cfg.s3 == nil {
		return nil
	}
	_, _, err := objects.StatNamed(ctx, markerObject)
	switch {
	case !errors.Is(err, fserror.NotFound):
		return err
	case s.cfg.HA != nil || !s.dir.Fresh:
		return s.notMarked(markerObject)
	}
	text := fmt.Sprintf("leasefs namespace %x\n", s.dir.ID)
	err = objects.PutNamed(ctx, markerObject, strings.NewReader(text), int64(len(text)), blockstore.CRC([]byte(text)))
	if errors.Is(err, fserror.Exists) {
		return nil
	}
	return err
}

// notMarked refuses a store that says nothing of the namespace.
func (s *Server) notMarked(object string) error {
	return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %q of namespace %x: its blocks are elsewhere; name the right store with --blocks", s.storeName(), object, s.dir.ID)
}

// An incarnation of a namespace is what its format, or a restore, brought to
// life: an ensemble's, or a data folder's. Two of them can have one id, but not
// one block store: they would mint the same keys, and each would delete what
// only the other knows. So the store has objects that say whose it is:
// incarnation-00000001, and one with the next number for each take-over. The
// last one counts. Like all named objects they are put if the name is free: of
// two that take over at a time one wins.
//
// The token is what an incarnation knows itself by. That of an ensemble is in
// ZooKeeper, that of a namenode alone in VERSION. A backup has none.
type incarnation struct {
	number uint64

	Namespace string `json:"namespace"`   // id
	Token     string `json:"incarnation"` // 32 hexadecimal digits
	Replaces  string `json:"replaces,omitempty"`
	// Terms of this incarnation are above TermFloor: those before, whose
	// clients may still have URLs, do not come so far.
	TermFloor uint64 `json:"term_floor,omitempty"`
	Made      string `json:"made"`
	By        string `json:"by"` // program, host, name of the namespace or folder
}

const (
	incarnationPrefix = "incarnation-"
	maxIncarnation    = 4 << 10 // bytes of such an object
	// incarnationTerms is how many reigns the incarnation before, if it still
	// runs, can begin unnoticed: each asks the store whether it may.
	incarnationTerms = 1 << 16
	// removeWithin is how long removing objects may take from the question whose
	// the store is on.
	removeWithin = 30 * time.Second
)

// settle is how long a restore waits, once it has taken over a store, for
// deletions of the incarnation before that are under way: longer than
// removeWithin. Changed by tests.
var settle = removeWithin + 10*time.Second

func newToken() string {
	var t [16]byte
	_, _ = rand.Read(t[:]) // it never fails
	return hex.EncodeToString(t[:])
}

func incarnationNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, incarnationPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && n > 0
}

func incarnationName(n uint64) string { return fmt.Sprintf("%s%08d", incarnationPrefix, n) }

// readToken reads the token of the incarnation that ZooKeeper has.
func readToken(ctx context.Context, sess *zkconn.Session, h *HA) (string, error) {
	path := h.path("incarnation")
	raw, _, err := sess.Get(ctx, path)
	if err == nil && !isID(string(raw)) || errors.Is(err, zookeeper.ErrNoNode) {
		return "", fserror.New(fserror.Damaged, "", "", "%s in ZooKeeper is damaged (%.40q); put it back from a backup of ZooKeeper", path, raw)
	}
	return string(raw), err
}

// makeToken is readToken, and makes one where there is none yet.
func makeToken(ctx context.Context, sess *zkconn.Session, h *HA) (token string, err error) {
	err = sess.Retry(ctx, func() error {
		if _, err := makeOnce(ctx, sess, h.path("incarnation"), []byte(newToken())); err != nil {
			return err
		}
		token, err = readToken(ctx, sess, h)
		return err
	})
	return token, err
}

// incarnations is what a store knows of the incarnations of one namespace.
type incarnations struct {
	objects blockstore.Objects
	store   string // for people
	id      [16]byte
}

// newest is the number of the incarnation whose the store is; 0: there is none.
func (i *incarnations) newest(ctx context.Context) (number uint64, err error) {
	after := ""
	for {
		const page = 1000
		infos, err := i.objects.ListNamed(ctx, incarnationPrefix, after, page)
		if err != nil {
			return 0, err
		}
		for _, info := range infos {
			after = info.Name
			if n, ok := incarnationNumber(info.Name); ok {
				number = max(number, n)
			}
		}
		if len(infos) < page {
			return number, nil
		}
	}
}

// read reads the newest one; its number is 0 if there is none.
func (i *incarnations) read(ctx context.Context) (top incarnation, err error) {
	n, err := i.newest(ctx)
	if err != nil || n == 0 {
		return top, err
	}
	r, err := i.objects.GetNamed(ctx, incarnationName(n), 0, -1)
	if err != nil {
		return top, err
	}
	defer func() { _ = r.Close() }()
	raw, err := io.ReadAll(io.LimitReader(r, maxIncarnation))
	if err != nil {
		return top, err
	}
	err = json.Unmarshal(raw, &top)
	if err != nil || !isID(top.Token) {
		return top, fserror.New(fserror.Damaged, "", "", "the object %s of namespace %x in the block store %s is damaged: put it back as it was, or if no namenode uses the store, remove it",
			incarnationName(n), i.id, i.store)
	}
	top.number = n
	return top, nil
}

// check returns whose the store is; of number 0: nobody's yet. It refuses a
// store that is not that of token, unless it is that of replaces.
func (i *incarnations) check(ctx context.Context, token, replaces string) (incarnation, error) {
	top, err := i.read(ctx)
	if err == nil && top.number > 0 && top.Token != token && top.Token != replaces {
		err = i.refusal(top, token)
		if replaces != "" {
			err = fserror.New(fserror.Exists, "", "", "%v (not %s)", err, replaces)
		}
	}
	return top, err
}

func (i *incarnations) refusal(top incarnation, token string) error {
	return fserror.New(fserror.Exists, "", "", "the block store %s belongs to incarnation %s of namespace %x (%s, since %s), and this is incarnation %s: "+
		"two that do not know of each other would delete each other's blocks; name another store or prefix with --blocks, or if that one has ended for good, take its store over with --take-over %s",
		i.store, top.Token, i.id, top.By, top.Made, token, top.Token)
}

// claim makes the store that of me.Token: one that is nobody's yet, or that of
// me.Replaces, which is taken over. floor is asked for the term that a take-over
// has to be above.
func (i *incarnations) claim(ctx context.Context, me incarnation, floor func(context.Context) (uint64, error)) (mine incarnation, taken bool, err error) {
	replaces := me.Replaces
	for {
		top, err := i.check(ctx, me.Token, replaces)
		if err != nil || top.number > 0 && top.Token == me.Token {
			return top, false, err
		}
		me.number, me.Namespace, me.Replaces, me.TermFloor = top.number+1, hex.EncodeToString(i.id[:]), top.Token, 0
		if top.number > 0 {
			if me.TermFloor, err = floor(ctx); err != nil {
				return top, false, err
			}
			me.TermFloor += incarnationTerms
		}
		raw, err := json.Marshal(me)
		if err != nil {
			return top, false, err
		}
		err = i.objects.PutNamed(ctx, incarnationName(me.number), strings.NewReader(string(raw)), int64(len(raw)), blockstore.CRC(raw))
		if err == nil {
			return me, top.number > 0, nil
		}
		if !errors.Is(err, fserror.Exists) { // else another was faster
			return top, false, err
		}
	}
}

// incarnation is this namenode's, as it would be put into a store.
func (c *Config) incarnation(token string) incarnation {
	host, _ := os.Hostname() // for people
	name := c.Data
	if c.HA != nil {
		name = c.HA.Name
	}
	return incarnation{
		Token: token, Replaces: c.TakeOver, Made: c.Clock.Wall().UTC().Format(time.RFC3339),
		By: fmt.Sprintf("leasefs %s on %s for %s", c.Version, cmp.Or(host, "a machine"), name),
	}
}

func (s *Server) incarnations() *incarnations {
	return &incarnations{s.objects, s.storeName(), s.dir.ID}
}

func (s *Server) storeName() string { return cmp.Or(s.cfg.Blocks, s.cfg.BlocksDir) }

// private reports whether the blocks are in the data folder, where nobody else
// can get at them.
func (s *Server) private() bool { return s.cfg.s3 == nil && s.cfg.BlocksDir == "" }

// meetStore refuses a store of another incarnation before anything is made of
// what is in it. Nothing is changed.
func (s *Server) meetStore(ctx context.Context) error {
	if s.private() {
		return nil
	}
	if s.cfg.HA == nil {
		if s.token = s.dir.Info.Incarnation; s.token == "" {
			s.token = newToken()
		}
	}
	top, err := s.incarnations().check(ctx, s.token, s.cfg.TakeOver)
	if err == nil && top.number == 0 && s.cfg.HA != nil { // else its format would have claimed it
		err = s.notMarked(incarnationName(1))
	}
	return err
}

// claimStore makes the store this incarnation's, where it is not yet.
func (s *Server) claimStore(ctx context.Context) error {
	if s.private() {
		return nil
	}
	if s.cfg.HA == nil && s.dir.Info.Incarnation != s.token {
		s.dir.Info.Incarnation = s.token
		if !s.dir.Fresh { // it is written at the end of the format
			if err := s.dir.WriteVersion(); err != nil {
				return err
			}
		}
	}
	mine, taken, err := s.incarnations().claim(ctx, s.cfg.incarnation(s.token), s.floorNow)
	if err != nil {
		return err
	}
	if taken {
		s.log.Warn("the block store was taken over", "store", s.storeName(), "from", mine.Replaces, "incarnation", mine.Token)
	}
	s.mine.Store(&mine)
	return nil
}

// termFloor is what every term of this incarnation is above.
func (s *Server) termFloor() uint64 {
	if mine := s.mine.Load(); mine != nil {
		return mine.TermFloor
	}
	return 0
}

// checkIncarnation makes sure that the store is still this incarnation's. If it is
// not, the reign ends for good. A new incarnation that ZooKeeper knows of is this
// one's, too: see resolveStore. Under owner's lock.
func (s *Server) checkIncarnation(ctx context.Context) error {
	mine := s.mine.Load()
	if mine == nil {
		return nil
	}
	of := s.incarnations()
	n, err := of.newest(ctx)
	if err != nil || n == mine.number {
		return err
	}
	top, err := of.read(ctx)
	switch {
	case err != nil:
		return err
	case top.number == 0:
		return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %s of namespace %x any more: nothing is deleted there; put it back, or restart the namenode if the store is its own",
			of.store, incarnationName(mine.number), of.id)
	}
	if top.Token != s.token && s.cfg.HA != nil {
		err := s.onSession(ctx, func(sess *zkconn.Session) error {
			token, err := readToken(ctx, sess, s.cfg.HA)
			if err == nil && token == top.Token {
				s.token = token
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	if top.Token != s.token {
		err = of.refusal(top, s.token)
		s.stepDown(err)
		return err
	}
	s.mine.Store(&top)
	s.owner.told.Store(false) // it is of a reign of the incarnation before
	return nil
}
