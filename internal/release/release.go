// Package release knows of which release of leasefs a program is.
package release

import (
	"runtime/debug"
	"strings"
	"sync"
)

// linked is what the linker sets for the program leasefs.
var linked string

// Name is what the linker has set, or else the version of this module with which the program was
// built, as go install knows it; "dev": neither is known.
var Name = sync.OnceValue(func() string {
	if linked != "" && linked != "dev" {
		return linked
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == "github.com/leasefs/leasefs" && strings.HasPrefix(m.Version, "v") {
				return m.Version
			}
		}
	}
	return "dev"
})
