// Package fspath checks and takes apart paths of the namespace. A path is
// absolute, of valid UTF-8, its components separated by single slashes.
package fspath

import (
	"strings"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
)

// Limits of a path. They are those of HDFS and Linux.
const (
	MaxName  = 255   // bytes in one component
	MaxPath  = 32768 // bytes in a path
	MaxDepth = 1024  // components in a path
)

// CheckName says whether one component is valid: 1 to 255 bytes of UTF-8, no
// slash, no NUL, neither "." nor "..". Errors are of kind InvalidPath or
// NameTooLong and name the component.
func CheckName(name string) error {
	switch {
	case name == "":
		return fserror.New(fserror.InvalidPath, "", "", "empty name")
	case len(name) > MaxName:
		return fserror.New(fserror.NameTooLong, "", "", "name of %d bytes is over the limit of %d: %q…", len(name), MaxName, truncate(name, 32))
	case name == "." || name == "..":
		return fserror.New(fserror.InvalidPath, "", "", "component %q is not allowed; give the path without it", name)
	case strings.IndexByte(name, 0) >= 0:
		return fserror.New(fserror.InvalidPath, "", "", "component %q contains a NUL byte", truncate(name, 64))
	case strings.IndexByte(name, '/') >= 0:
		return fserror.New(fserror.InvalidPath, "", "", "name %q contains a slash", truncate(name, 64))
	case !utf8.ValidString(name):
		return fserror.New(fserror.InvalidPath, "", "", "component %q is not valid UTF-8", truncate(name, 64))
	}
	return nil
}

// CheckNameBytes is CheckName. It takes no memory for a name of the usual characters.
func CheckNameBytes(name []byte) error {
	plain := len(name) > 0 && len(name) <= MaxName
	for _, c := range name {
		plain = plain && (c > '/' && c < 0x7f || c == '-')
	}
	if plain {
		return nil
	}
	return CheckName(string(name))
}

// Check says whether path is valid as a whole. Trailing and doubled slashes
// are not: Clean takes them away first.
func Check(path string) error {
	if err := checkWhole(path); err != nil {
		return err
	}
	if path == "/" {
		return nil
	}
	depth := 0
	for rest := path[1:]; ; {
		name, more, found := strings.Cut(rest, "/")
		if err := CheckName(name); err != nil {
			return fserror.With(err, "", display(path))
		}
		if depth++; depth > MaxDepth {
			return fserror.New(fserror.NameTooLong, "", display(path), "path has more than %d components", MaxDepth)
		}
		if !found {
			return nil
		}
		rest = more
	}
}

// Clean removes doubled and trailing slashes, then checks the path. It does
// not resolve "." and "..": they are refused, since with symbolic links their
// textual meaning is not what a person expects.
func Clean(path string) (string, error) {
	if err := checkWhole(path); err != nil {
		return "", err
	}
	if strings.Contains(path, "//") {
		var b strings.Builder
		b.Grow(len(path))
		for i := 0; i < len(path); i++ {
			if path[i] == '/' && i > 0 && path[i-1] == '/' {
				continue
			}
			b.WriteByte(path[i])
		}
		path = b.String()
	}
	if len(path) > 1 {
		path = strings.TrimSuffix(path, "/")
	}
	return path, Check(path)
}

func checkWhole(path string) error {
	switch {
	case path == "":
		return fserror.New(fserror.InvalidPath, "", "", "the path is empty; give an absolute one such as /logs/a")
	case path[0] != '/':
		return fserror.New(fserror.InvalidPath, "", display(path), "the path is relative; give an absolute one such as /%s", truncate(strings.TrimPrefix(path, "./"), 64))
	case len(path) > MaxPath:
		return fserror.New(fserror.NameTooLong, "", display(path), "path of %d bytes is over the limit of %d", len(path), MaxPath)
	}
	return nil
}

// Split returns the parent directory of a clean path and its last component.
// The root has itself as parent and an empty name.
func Split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	if i <= 0 {
		return "/", path[i+1:]
	}
	return path[:i], path[i+1:]
}

// Join appends name to the clean directory path dir.
func Join(dir, name string) string {
	if dir == "/" {
		return "/" + name
	}
	return dir + "/" + name
}

// display shortens a path for an error message and makes it printable.
func display(path string) string {
	if !utf8.ValidString(path) || strings.ContainsAny(path, "\x00\n\r\x1b") {
		path = strings.ToValidUTF8(strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return '\ufffd'
			}
			return r
		}, path), "\ufffd")
	}
	return truncate(path, 256)
}

// truncate cuts s after at most n bytes, at a rune's border.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// CheckNames is CheckName for several: those of directories and a last one.
func CheckNames(dirs []string, name string) error {
	for _, d := range dirs {
		if err := CheckName(d); err != nil {
			return err
		}
	}
	return CheckName(name)
}

// Names are the components of name/rest, checked: the last one, and those before it, nil if
// there are none. rest may have doubled slashes, or be empty.
func Names(name, rest string) (dirs []string, last string, err error) {
	names := []string{name}
	for rest != "" {
		var next string
		if next, rest, _ = strings.Cut(rest, "/"); next != "" {
			names = append(names, next)
		}
	}
	end := len(names) - 1
	if end > 0 {
		dirs = names[:end]
	}
	return dirs, names[end], CheckNames(dirs, names[end])
}

// Fits reports whether a path of so many components and bytes can be named.
func Fits(depth, size int) bool { return depth <= MaxDepth && size <= MaxPath }

// End returns a path, or of one that is too long to be named the longest end that is not.
func End(path string) string {
	start := len(path)
	for depth := 1; start > 0; depth++ {
		i := strings.LastIndexByte(path[:start], '/')
		if i < 0 || !Fits(depth, len(path)-i) {
			break
		}
		start = i
	}
	return path[start:]
}

// Begin returns a path, or of one that is too long to be named the longest beginning that, with "/…"
// for the rest, is not. So it is below the same directories.
func Begin(path string) string {
	const rest = "/…"
	if Fits(strings.Count(path, "/"), len(path)) {
		return path
	}
	cut := 0
	for depth := 2; ; depth++ {
		n := strings.IndexByte(path[cut+1:], '/') + 1
		if n == 0 || !Fits(depth, cut+n+len(rest)) {
			return path[:cut] + rest
		}
		cut += n
	}
}

// TooLong is the error (NameTooLong) of a call about a path, if what would not fit.
func TooLong(op, path, what string) error {
	return fserror.New(fserror.NameTooLong, op, path, "%s would be over the limits of %d components and %d bytes", what, MaxDepth, MaxPath)
}
