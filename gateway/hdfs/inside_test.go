package hdfs

import (
	"cmp"
	"slices"

	"github.com/leasefs/leasefs/gateway/hdfs/files"
	"github.com/leasefs/leasefs/gateway/users"
)

// Tables are what it has open, and for whom.
func (s *Server) Tables() (*files.Table, *users.Table) { return s.files, s.users }

// Located is how many blocks answers describe that are under way.
func (s *Server) Located() int64 { return s.located.Used() }

// Reports is how many reports that are made whole are under way.
func (s *Server) Reports() int64 { return s.reports.Used() }

// Method is one that is served.
type Method struct{ Protocol, Method string }

// Methods are all that are served, in order.
func Methods() (all []Method) {
	for p, methods := range protocols {
		for m := range methods {
			all = append(all, Method{p, m})
		}
	}
	slices.SortFunc(all, func(a, b Method) int {
		return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Method, b.Method))
	})
	return all
}
