package webhdfs

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
