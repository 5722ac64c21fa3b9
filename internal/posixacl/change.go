package posixacl

import "slices"

// Action is how a change uses its entries.
type Action uint8

// The actions. Replace, Modify and Remove do what the operations of that name do in HDFS,
// and setfacl when it sets, modifies and removes: a mask is computed again, as all that it masks together,
// in a part (access or default) that the entries are about, unless they name one.
const (
	// Replace makes the entries the whole list. A part that they are not about stays.
	Replace Action = iota
	// Modify adds entries, or gives those that are there other permissions.
	Modify
	// Remove takes entries out; their permissions do not count. That one is not there is
	// no error.
	Remove
	// RemoveDefault takes the default ACL away. It has no entries.
	RemoveDefault
	// RemoveAll leaves what the mode says; the owning group gets what it has in effect.
	// It has no entries.
	RemoveAll
	// Exact is Replace, but no mask is computed.
	Exact
	// Whole makes the entries all that there is, the default ACL included; no mask is computed.
	Whole
)

// Change is a change of a list.
type Change struct {
	Action  Action
	Entries ACL // in any order
}

// mostGiven is how many entries a change may name.
const mostGiven = 2 * MaxEntries

// Apply returns a list with a change. Errors are of kind InvalidArgument: what comes out
// is no ACL, or the change makes no sense. Neither list is changed.
func (a ACL) Apply(c Change) (ACL, error) {
	given := sort(slices.Clone(c.Entries))
	if c.Action > Whole {
		return nil, invalid("%d is no way to change one", c.Action)
	}
	if len(given) > mostGiven {
		return nil, invalid("%d entries are given; the limit is %d", len(given), mostGiven)
	}
	var p parts
	for i, e := range given {
		if err := e.check(); err != nil {
			return nil, err
		}
		if i > 0 && given[i-1].sameAs(e) {
			return nil, invalid("%s is given twice", e.who())
		}
		if c.Action == Remove && !slices.ContainsFunc(a, e.sameAs) {
			continue // nothing changes
		}
		p.of(e).given = true
		p.of(e).mask = p.of(e).mask || e.Tag == Mask
	}
	if none := c.Action == RemoveDefault || c.Action == RemoveAll; none != (len(given) == 0) {
		return nil, invalid("a change needs entries, and the removal of the whole has none")
	}
	out := make(ACL, 0, len(a)+len(given))
	for _, e := range a {
		if p.keeps(c, given, e) {
			out = append(out, e)
		}
	}
	if c.Action != Remove {
		out = append(out, given...)
	}
	if c.Action == RemoveAll {
		return a.bare(), nil
	}
	if c.Action == Remove {
		a.unmask(out)
	}
	out = sort(copyDefaults(out))
	if c.Action != Exact && c.Action != Whole {
		var err error
		if out, err = p.masks(out, c.Action == Remove); err != nil {
			return nil, err
		}
	}
	return out, out.Check()
}

// bare is the list without what a mode cannot say.
func (a ACL) bare() ACL {
	mode := a.Mode()
	if g, ok := a.Get(false, OwningGroup, ""); ok {
		mode &= 0o707 | uint16(g.Perm)<<3
	}
	return FromMode(mode)
}

// unmask gives the owning group what it has in effect, where an entry of a that says less
// for it, the mask, is not in the list any more.
func (a ACL) unmask(out ACL) {
	for i, e := range out {
		if _, masked := out.Get(e.Default, Mask, ""); e.Tag == OwningGroup && !masked {
			out[i].Perm = a.Effective(e)
		}
	}
}

// part is what entries say of the access ACL, or the default one.
type part struct{ given, mask bool }

type parts struct{ access, byDefault part }

func (p *parts) of(e Entry) *part {
	if e.Default {
		return &p.byDefault
	}
	return &p.access
}

// keeps reports whether an entry that is there stays as it is.
func (p *parts) keeps(c Change, given ACL, e Entry) bool {
	switch c.Action {
	case Replace, Exact:
		return !p.of(e).given
	case RemoveDefault:
		return !e.Default
	case Whole:
		return false
	}
	return !slices.ContainsFunc(given, e.sameAs)
}

// copyDefaults gives a default ACL that lacks them the entries that each has, those of the
// access ACL.
func copyDefaults(a ACL) ACL {
	if !slices.ContainsFunc(a, func(e Entry) bool { return e.Default }) {
		return a
	}
	for _, tag := range []Tag{Owner, OwningGroup, Other} {
		if _, ok := a.Get(true, tag, ""); ok {
			continue
		}
		if e, ok := a.Get(false, tag, ""); ok {
			e.Default = true
			a = append(a, e)
		}
	}
	return a
}

// masks computes the masks of parts that were changed, unless one was given.
func (p *parts) masks(a ACL, removes bool) (ACL, error) {
	for _, d := range []bool{false, true} {
		var union uint8
		named := false
		for _, e := range a {
			if e.Default == d && (e.Tag.named() || e.Tag == OwningGroup) {
				union |= e.Perm
				named = named || e.Tag.named()
			}
		}
		this := p.of(Entry{Default: d})
		at := slices.IndexFunc(a, func(e Entry) bool { return e.Default == d && e.Tag == Mask })
		switch {
		case removes && this.mask && named:
			return nil, invalid("its mask cannot be removed while it has entries for users or groups by name")
		case this.mask || !this.given:
		case at >= 0:
			a[at].Perm = union
		case named:
			a = append(a, Entry{Default: d, Tag: Mask, Perm: union})
		}
	}
	return sort(a), nil
}
