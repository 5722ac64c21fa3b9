package webhdfs

// Reports is how many reports that are made whole are under way.
func (s *Server) Reports() int64 { return s.reports.Used() }

// Operations are the names of the operations of each method.
func Operations() map[string][]string {
	all := map[string][]string{}
	for method, byName := range operations {
		for name := range byName {
			all[method] = append(all[method], name)
		}
	}
	return all
}
