package screen

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Version is the version that the linker set or, where it set none ("dev"), that of the
// module, as go install knows it.
func Version(linked string) string {
	if info, ok := debug.ReadBuildInfo(); ok && cmp.Or(linked, "dev") == "dev" && strings.HasPrefix(info.Main.Version, "v") {
		return info.Main.Version
	}
	return linked
}
