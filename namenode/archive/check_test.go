package archive

import (
	"errors"
	"strings"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/fserror"
)

// checked checks all objects, and returns the names of those that are damaged.
func (r *rig) checked() (damaged []string) {
	r.t.Helper()
	for name := ""; ; {
		list, err := r.Next(r.t.Context(), name, 2)
		if err != nil {
			r.t.Fatal(err)
		}
		if len(list) == 0 {
			return damaged
		}
		for _, o := range list {
			name = o.Name
			err := r.Check(r.t.Context(), name)
			if errors.Is(err, fserror.Damaged) {
				damaged = append(damaged, name)
			} else if err != nil {
				r.t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestCheck: each object is read, what is damaged is told of, and a base comes soon from which the moments
// behind it can be had, once.
func TestCheck(t *testing.T) {
	r := newRig(t)
	for range 3 { // objects up to 5, 9 and 13
		r.grow(t, 4, 1)
		r.all()
	}
	middle := r.catalog().spans[1].Name()
	if got := r.checked(); len(got) != 0 {
		t.Fatalf("damaged: %v", got)
	}
	if err := r.Check(t.Context(), "archive-of-nobody"); err != nil {
		t.Error(err)
	}
	r.damage(middle)
	for range 3 {
		if got := r.checked(); len(got) != 1 || got[0] != middle {
			t.Fatalf("damaged: %v, and %s is", got, middle)
		}
		r.grow(t, 4, 1) // to 17, a base
		r.all()
	}
	r.has(17, 18, 25)
	if n := len(r.catalog().stored); n != 2 {
		t.Errorf("there are %d bases", n)
	}
	base := r.catalog().stored[0].Name
	r.damage(base)
	if got := r.checked(); len(got) != 2 || got[1] != base {
		t.Fatalf("damaged: %v, and %s is, too", got, base)
	}
	r.grow(t, 4, 1)
	r.all()
	r.has(29)
	if n := len(r.catalog().stored); n != 3 {
		t.Errorf("there are %d bases", n)
	}
	if err := r.DeleteNamed(t.Context(), middle); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(t.Context(), middle); err != nil { // it may have been removed
		t.Error(err)
	}
}

// TestSurvey: the bytes of all objects are counted; one that is gone leaves a hole, which is told of once,
// and not the hole that a purge left behind a base; and a base comes soon.
func TestSurvey(t *testing.T) {
	r := newRig(t)
	for range 5 { // objects up to 5, 9, 13, 17 and 21
		r.grow(t, 4, 1)
		r.all()
	}
	survey := func(holes int) {
		t.Helper()
		want := int64(0)
		list, err := r.Next(t.Context(), "", 1000)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range append(list, r.bases()...) {
			want += o.Length
		}
		if bytes, err := r.Survey(t.Context()); bytes != want || want == 0 || err != nil {
			t.Errorf("it has %d bytes, not %d; %v", bytes, want, err)
		}
		if got := r.Stats().Holes; got != holes {
			t.Errorf("it tells of %d holes, not %d:\n%s", got, holes, r.log.String())
		}
	}
	survey(0)
	r.grow(t, 9, 1)
	r.gone = 27
	r.grow(t, 1, 1)
	r.all() // the hole is told of, and a base at 31
	r.grow(t, 4, 1)
	r.all() // 35
	survey(1)
	if err := r.DeleteNamed(t.Context(), r.catalog().spans[2].Name()); err != nil {
		t.Fatal(err)
	}
	survey(2)
	survey(2)
	if !strings.Contains(r.log.String(), `msg="objects of the archive are gone`) || !strings.Contains(r.log.String(), `"from record"=10`) {
		t.Errorf("the log says\n%s", r.log.String())
	}
}

// bases are listed behind what Next begins with.
func (r *rig) bases() []blockstore.NamedInfo {
	r.t.Helper()
	list, err := r.flaky.ListNamed(r.t.Context(), BasePrefix, "", 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	return list
}
