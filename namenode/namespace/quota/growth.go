package quota

import (
	"fmt"
	"strconv"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// Growth is how much a change adds to quotas, as a whole: of each Entry the Use.
type Growth []Entry

// Add adds u to a quota, sign times.
func (g *Growth) Add(e Entry, u Use, sign int64) {
	for i := range *g {
		if have := &(*g)[i]; have.Dir == e.Dir {
			have.Use = have.Plus(u, sign)
			return
		}
	}
	e.Use = Use{}.Plus(u, sign)
	*g = append(*g, e)
}

// Fits returns an error of kind NoSpace if a quota grows beyond a limit, whether it was within
// it or not. path says where a directory is.
func (t *Table[X]) Fits(g Growth, path func(tables.InodeID) string) error {
	for _, more := range g {
		e, ok := t.Get(more.Dir)
		switch {
		case !ok:
		case over(e.Limits.Names, e.Use.Names, more.Use.Names):
			return exceeded(path(e.Dir), "names", fserror.ReasonQuotaNames, e.Limits.Names, e.Use.Names, more.Use.Names)
		case over(e.Limits.Bytes, e.Use.Bytes, more.Use.Bytes):
			return exceeded(path(e.Dir), "bytes", fserror.ReasonQuotaBytes, e.Limits.Bytes, e.Use.Bytes, more.Use.Bytes)
		}
	}
	return nil
}

func over(limit, use, more int64) bool { return limit != None && more > 0 && more > limit-use }

func exceeded(path, what, reason string, limit, use, more int64) error {
	return fserror.New(fserror.NoSpace, "", "", "%s has a quota of %s %s and has %s; this would add %s", path, digits(limit), what, digits(use), digits(more)).Because(reason)
}

// digits is a number that is not below 0, its digits in groups of three.
func digits(n int64) string {
	if n < 1000 {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%s,%03d", digits(n/1000), n%1000)
}
