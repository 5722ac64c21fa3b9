// Package filemode translates between modes of Go (fs.FileMode) and of Unix:
// the nine permission bits and S_ISVTX, the sticky bit, which Go keeps at
// another place. leasefs has no other bits: neither set-user-ID nor
// set-group-ID means anything in it.
package filemode

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Most is the largest mode in Unix's bits.
const Most = 0o1777

const sticky = 0o1000

// Changeable are the bits of an fs.FileMode that chmod changes.
const Changeable = fs.ModePerm | fs.ModeSticky

// FromUnix is the mode of Unix's bits; those above Most are left out.
func FromUnix(bits uint32) fs.FileMode {
	m := fs.FileMode(bits) & fs.ModePerm
	if bits&sticky != 0 {
		m |= fs.ModeSticky
	}
	return m
}

// Unix is the reverse of FromUnix. It leaves the type out.
func Unix(m fs.FileMode) uint32 {
	bits := uint32(m.Perm())
	if m&fs.ModeSticky != 0 {
		bits |= sticky
	}
	return bits
}

// Parse reads a mode as chmod takes it, in octal: 0755 or 1777.
func Parse(s string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 16)
	if err != nil || n > Most {
		return 0, fmt.Errorf("%q is not an octal mode from 0 to %o", s, Most)
	}
	return FromUnix(uint32(n)), nil
}

// Format is a mode as Parse reads it, of four digits.
func Format(m fs.FileMode) string { return fmt.Sprintf("%04o", Unix(m)) }

// Umask is the process's own, as the kernel shows it; nil if that cannot be seen.
func Umask() *fs.FileMode {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return nil
	}
	_, rest, _ := strings.Cut(string(status), "\nUmask:")
	line, _, _ := strings.Cut(rest, "\n")
	mask, err := Parse(strings.TrimSpace(line))
	if err != nil {
		return nil
	}
	return &mask
}
