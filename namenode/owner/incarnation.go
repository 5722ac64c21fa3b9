package owner

import (
	"context"
	"errors"
	"fmt"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/marker"
)

// checkMarker makes sure that the block store is this namespace's. That of several
// namenodes was marked by its format; a namenode alone marks that of a new
// namespace.
func (o *Owner) checkMarker(ctx context.Context) error {
	if o.Marked {
		return nil
	}
	_, _, err := o.Objects.StatNamed(ctx, marker.Object)
	switch {
	case !errors.Is(err, fserror.NotFound):
		return err
	case o.Formatted || !o.Fresh:
		return o.notMarked(marker.Object)
	}
	text := fmt.Sprintf("leasefs namespace %x\n", o.ID)
	err = blockstore.PutBytes(ctx, o.Objects, marker.Object, []byte(text))
	if errors.Is(err, fserror.Exists) {
		return nil
	}
	return err
}

// notMarked refuses a store that says nothing of the namespace.
func (o *Owner) notMarked(object string) error {
	return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %q of namespace %x: its blocks are elsewhere; name the right store", o.Name, object, o.ID).Because(fserror.ReasonBlocks)
}

// Meet refuses a store of another incarnation before anything is made of
// what is in it. Nothing is changed.
func (o *Owner) Meet(ctx context.Context) error {
	if o.Private {
		return nil
	}
	top, err := o.incarnations().Check(ctx, o.Token, o.TakeOver)
	if err == nil && top.Number == 0 && o.Formatted { // else its format would have claimed it
		err = o.notMarked(marker.Name(1))
	}
	return err
}

// Claim makes sure that the store is this namespace's, and makes it this
// incarnation's where it is not yet.
func (o *Owner) Claim(ctx context.Context) error {
	if err := o.checkMarker(ctx); err != nil || o.Private {
		return err
	}
	if !o.Formatted {
		if err := o.Keep(ctx, o.Token); err != nil {
			return err
		}
	}
	mine, taken, err := o.incarnations().Claim(ctx, o.Incarnation(o.Token), o.floorNow)
	if err != nil {
		return err
	}
	if taken {
		o.Log.Warn("the block store was taken over", "store", o.Name, "from", mine.Replaces, "incarnation", mine.Token)
	}
	o.mine.Store(&mine)
	return nil
}

// Floor is what the term of every reign of this incarnation is above, but for the reign that
// made it by ending a conflict: that one archives in this term, see Overrules.
func (o *Owner) Floor() uint64 {
	if mine := o.mine.Load(); mine != nil && mine.TermFloor > 0 {
		return mine.TermFloor + 1
	}
	return 0
}

// checkIncarnation makes sure that the store is still this incarnation's. If it is
// not, the reign ends for good. A new incarnation that ZooKeeper knows of is this
// one's, too: see Resolve. The turn is held.
func (o *Owner) checkIncarnation(ctx context.Context) error {
	mine := o.mine.Load()
	if mine == nil {
		return nil
	}
	of := o.incarnations()
	n, err := of.Newest(ctx)
	if err != nil || n == mine.Number {
		return err
	}
	top, err := of.Read(ctx)
	switch {
	case err != nil:
		return err
	case top.Number == 0:
		return fserror.New(fserror.NotFound, "", "", "the block store %s has no object %s of namespace %x any more: nothing is deleted there; put it back, or restart the namenode if the store is its own",
			of.Store, marker.Name(mine.Number), of.ID)
	}
	if top.Token != o.Token && o.Known != nil {
		token, err := o.Known(ctx)
		if err != nil {
			return err
		}
		if token == top.Token {
			o.Token = token
		}
	}
	if top.Token != o.Token {
		err = of.Refusal(top, o.Token)
		o.Fail(err)
		return err
	}
	o.mine.Store(&top)
	o.told.Store(false) // it is of a reign of the incarnation before
	return nil
}

func (o *Owner) incarnations() *marker.Incarnations {
	return &marker.Incarnations{Objects: o.Objects, Store: o.Name, ID: o.ID}
}

// NextTerm is above the last reign's, and above that of every block in the
// store, and of every reign that the store was told of: later ones mean that
// another namenode had this folder (one started from a backup), or that the data
// folder, or ZooKeeper, is an older copy. Their keys must not be minted again.
func (o *Owner) NextTerm(ctx context.Context, last uint64) (uint64, error) {
	top, err := o.topTerm(ctx, last)
	if err != nil {
		return 0, err
	}
	if top > last {
		o.Log.Warn("the block store knows of later reigns than this history: an older copy, or another namenode; their blocks are deleted when an operator asks for it only", "reason", fserror.ReasonUnsweptBlocks, "last", last, "found", top)
	}
	return max(top, o.Floor()) + 1, nil
}

// topTerm is the highest term that the store knows of, or least.
func (o *Owner) topTerm(ctx context.Context, least uint64) (uint64, error) {
	top, err := marker.TopTerm(ctx, o.Store, least)
	if err != nil {
		return 0, err
	}
	return o.topReign(ctx, top)
}
