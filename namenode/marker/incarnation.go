package marker

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// Object is the named object that says whose a block store is.
const Object = "namespace"

// Incarnation of a namespace is what its format, or a restore, brought to
// life: an ensemble's, or a data folder's. Two of them can have one id, but not
// one block store: they would mint the same keys, and each would delete what
// only the other knows. So the store has objects that say whose it is:
// incarnation-00000001, and one with the next number for each take-over. The
// last one counts. Like all named objects they are put if the name is free: of
// two that take over at a time one wins.
//
// The token is what an incarnation knows itself by. That of an ensemble is in
// ZooKeeper, that of a namenode alone in VERSION. A backup has none.
type Incarnation struct {
	Number uint64

	Namespace string `json:"namespace"`   // id
	Token     string `json:"incarnation"` // 32 hexadecimal digits
	Replaces  string `json:"replaces,omitempty"`
	// Terms of this incarnation are above TermFloor: those before, whose
	// clients may still have URLs, do not come so far.
	TermFloor uint64 `json:"term_floor,omitempty"`
	Made      string `json:"made"`
	By        string `json:"by"` // program, host, name of the namespace or folder
}

// New is what a program of that version puts into a store for a namespace
// or folder of that name. It replaces, if need be, the one whose token is replaces.
func New(clk clock.Clock, version, name, token, replaces string) Incarnation {
	host, _ := os.Hostname() // for people
	return Incarnation{
		Token: token, Replaces: replaces, Made: clk.Wall().UTC().Format(time.RFC3339),
		By: fmt.Sprintf("leasefs %s on %s for %s", version, cmp.Or(host, "a machine"), name),
	}
}

// Bounds of what is in a store, and of what is done there.
const (
	incarnationPrefix = "incarnation-"
	MaxBytes          = 4 << 10 // bytes of such an object
	// incarnationTerms is how many reigns the incarnation before, if it still
	// runs, can begin unnoticed: each asks the store whether it may.
	incarnationTerms = 1 << 16
	// RemoveWithin is how long removing objects may take from the question whose
	// the store is on.
	RemoveWithin = 30 * time.Second
)

// NewToken makes the token of a new incarnation.
func NewToken() string {
	var t [16]byte
	_, _ = rand.Read(t[:]) // it never fails
	return hex.EncodeToString(t[:])
}

func incarnationNumber(name string) (uint64, bool) {
	digits, ok := strings.CutPrefix(name, incarnationPrefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	return n, ok && err == nil && n > 0
}

// Name is the object of the incarnation of that number.
func Name(n uint64) string { return fmt.Sprintf("%s%08d", incarnationPrefix, n) }

// Incarnations is what a store knows of the incarnations of one namespace.
type Incarnations struct {
	Objects blockstore.Objects
	Store   string // for people
	ID      [16]byte
}

// Newest is the number of the incarnation whose the store is; 0: there is none.
func (i *Incarnations) Newest(ctx context.Context) (number uint64, err error) {
	names, err := blockstore.Names(ctx, i.Objects, incarnationPrefix)
	for _, name := range names {
		if n, ok := incarnationNumber(name); ok {
			number = max(number, n)
		}
	}
	return number, err
}

// Read reads the newest one; its number is 0 if there is none.
func (i *Incarnations) Read(ctx context.Context) (top Incarnation, err error) {
	n, err := i.Newest(ctx)
	if err != nil || n == 0 {
		return top, err
	}
	raw, err := blockstore.GetBytes(ctx, i.Objects, Name(n), MaxBytes)
	if err != nil {
		return top, err
	}
	err = json.Unmarshal(raw, &top)
	if err != nil || !IsID(top.Token) {
		return top, fserror.New(fserror.Damaged, "", "", "the object %s of namespace %x in the block store %s is damaged: put it back as it was, or if no namenode uses the store, remove it",
			Name(n), i.ID, i.Store)
	}
	top.Number = n
	return top, nil
}

// Check returns whose the store is; of number 0: nobody's yet. It refuses a
// store that is not that of token, unless it is that of replaces.
func (i *Incarnations) Check(ctx context.Context, token, replaces string) (Incarnation, error) {
	top, err := i.Read(ctx)
	if err == nil && top.Number > 0 && top.Token != token && top.Token != replaces {
		err = i.Refusal(top, token)
		if replaces != "" {
			err = fserror.New(fserror.Exists, "", "", "%v (not %s)", err, replaces).Because(fserror.ReasonOtherStore)
		}
	}
	return top, err
}

// Refusal is the error of one that knows token, and finds the store to be top's.
func (i *Incarnations) Refusal(top Incarnation, token string) error {
	return fserror.New(fserror.Exists, "", "", "the block store %s belongs to incarnation %s of namespace %x (%s, since %s), and this is incarnation %s: "+
		"two that do not know of each other would delete each other's blocks; name another store or prefix, or if that one has ended for good, take over the store of incarnation %s",
		i.Store, top.Token, i.ID, top.By, top.Made, token, top.Token).Because(fserror.ReasonOtherStore)
}

// Claim makes the store that of me.Token: one that is nobody's yet, or that of
// me.Replaces, which is taken over. floor is asked for the term that a take-over
// has to be above.
func (i *Incarnations) Claim(ctx context.Context, me Incarnation, floor func(context.Context) (uint64, error)) (mine Incarnation, taken bool, err error) {
	replaces := me.Replaces
	for {
		top, err := i.Check(ctx, me.Token, replaces)
		if err != nil || top.Number > 0 && top.Token == me.Token {
			return top, false, err
		}
		me.Number, me.Namespace, me.Replaces, me.TermFloor = top.Number+1, hex.EncodeToString(i.ID[:]), top.Token, 0
		if top.Number > 0 {
			if me.TermFloor, err = floor(ctx); err != nil {
				return top, false, err
			}
			me.TermFloor += incarnationTerms
		}
		raw, err := json.Marshal(me)
		if err != nil {
			return top, false, err
		}
		err = blockstore.PutBytes(ctx, i.Objects, Name(me.Number), raw)
		if err == nil {
			return me, top.Number > 0, nil
		}
		if !errors.Is(err, fserror.Exists) { // else another was faster
			return top, false, err
		}
	}
}

// IsID reports whether a text is as namespaces and their incarnations are named.
func IsID(text string) bool {
	_, ok := ParseID(text)
	return ok
}

// ParseID reads 32 hexadecimal digits.
func ParseID(text string) (id [16]byte, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) || strings.ToLower(text) != text {
		return id, false
	}
	return [16]byte(b), true
}

// TopTerm is the highest term of a block in the store, or at least that.
func TopTerm(ctx context.Context, store blockstore.Store, least uint64) (uint64, error) {
	for {
		infos, err := store.List(ctx, blockstore.Key{Term: least, Seq: math.MaxUint64}, 1)
		if err != nil || len(infos) == 0 {
			return least, err
		}
		least = infos[0].Key.Term
	}
}
