package touched

import "testing"

func TestAdd(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		marks bool
		fine  bool
	}{
		"beside":               {"/a/c", false, true},
		"longer name":          {"/a/bb", false, true},
		"the same":             {"/a/b", true, false},
		"below":                {"/a/b/c", true, false},
		"above":                {"/a", true, false},
		"the root":             {"/", false, false},
		"mark below a mark":    {"/m/x", true, true},
		"no mark below a mark": {"/m/x", false, false},
		"no path":              {"a", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var n Names
			if err := n.Add(0, "/a/b", false); err != nil {
				t.Fatal(err)
			}
			if err := n.Add(1, "/m", true); err != nil {
				t.Fatal(err)
			}
			switch err := n.Add(2, c.path, c.marks); {
			case c.fine && err != nil:
				t.Error(err)
			case !c.fine && err == nil:
				t.Error("taken")
			}
		})
	}
}
