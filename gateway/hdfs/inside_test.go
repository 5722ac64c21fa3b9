package hdfs

// Located is how many blocks answers describe that are under way.
func (s *Server) Located() int64 { return s.located.Used() }
