package hdfs

// Located is how many blocks answers describe that are under way.
func (s *Server) Located() int64 { return s.located.Used() }

// Method is one that is served.
type Method struct{ Protocol, Method string }

// Methods are all that are served.
func Methods() (all []Method) {
	for p, methods := range protocols {
		for m := range methods {
			all = append(all, Method{p, m})
		}
	}
	return all
}
