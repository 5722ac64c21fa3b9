package argv

import (
	"strconv"
	"strings"
)

// ParseSize reads a number of bytes such as 4096, 64K or 1G; flag is for errors.
func ParseSize(op, flag, s string) (int64, error) {
	digits, shift := s, 0
	if i := strings.IndexByte("KMGT", (" " + s)[len(s)]&^0x20); i >= 0 {
		digits, shift = s[:len(s)-1], 10*(i+1)
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > (1<<62)>>shift {
		return 0, Usagef(op, "%s: %q is not a number of bytes such as 4096, 64K or 1G", flag, s)
	}
	return n << shift, nil
}
