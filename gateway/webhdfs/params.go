package webhdfs

import (
	"fmt"
	"io/fs"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/filemode"
)

// Limits of what a request says beside its path.
const (
	maxParams = 64        // names and values in a query
	maxQuery  = 192 << 10 // bytes of a query
)

// params are the parameters of a request by their names in lower case: Hadoop
// takes them in any, but a request has to choose one. The first value of a name counts.
type params url.Values

// badParam is a parameter that cannot be understood; Hadoop's
// IllegalArgumentException.
type badParam struct{ name, problem string }

func (e *badParam) Error() string {
	return fmt.Sprintf("Invalid value for webhdfs parameter %q: %s", e.name, e.problem)
}

// JavaClass says what Hadoop calls it.
func (e *badParam) JavaClass() string { return hadoop.IllegalArgument }

// parseParams decodes a query.
func parseParams(query string) (params, error) {
	if len(query) > maxQuery {
		return nil, &badParam{"op", fmt.Sprintf("the query has %d bytes, at most %d are allowed", len(query), maxQuery)}
	}
	if n := strings.Count(query, "&"); n >= maxParams {
		return nil, &badParam{"op", fmt.Sprintf("the query has %d parameters, at most %d are allowed", n+1, maxParams)}
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, &badParam{"op", fmt.Sprintf("the query cannot be decoded: %s", err)}
	}
	p := params{}
	for name, v := range values {
		lower := strings.ToLower(name)
		if p[lower] != nil {
			return nil, &badParam{lower, "it is given in small and in capital letters; give it once"}
		}
		p[lower] = v
	}
	return p, nil
}

// text is a parameter, empty if it is missing.
func (p params) text(name string) string { return url.Values(p).Get(name) }

// has tells whether a parameter is there and not empty. (Hadoop's client also
// writes "null" for what it does not say.)
func (p params) has(name string) bool { v := p.text(name); return v != "" && v != "null" }

// maybe is a parameter, empty if it is missing or said to be null.
func (p params) maybe(name string) string {
	if !p.has(name) {
		return ""
	}
	return p.text(name)
}

// flag is a parameter that is true or false.
func (p params) flag(name string, without bool) (bool, error) {
	if !p.has(name) {
		return without, nil
	}
	switch v := p.text(name); {
	case strings.EqualFold(v, "true"):
		return true, nil
	case strings.EqualFold(v, "false"):
		return false, nil
	default:
		return false, &badParam{name, fmt.Sprintf("Failed to parse %q to Boolean.", v)}
	}
}

// number is a parameter between two bounds.
func (p params) number(name string, without, least, most int64) (int64, error) {
	if !p.has(name) {
		return without, nil
	}
	v := p.text(name)
	n, err := strconv.ParseInt(v, 10, 64)
	switch {
	case err != nil:
		return 0, &badParam{name, fmt.Sprintf("Failed to parse %q as a radix-10 long integer.", v)}
	case n < least:
		return 0, &badParam{name, fmt.Sprintf("%d is too small; it must be at least %d", n, least)}
	case n > most:
		return 0, &badParam{name, fmt.Sprintf("%d is too large; it must be at most %d", n, most)}
	}
	return n, nil
}

// needed is a parameter that must be there.
func (p params) needed(name string) (string, error) {
	if !p.has(name) {
		return "", hadoop.Refuse(hadoop.IllegalArgument, "Required param %s for op: %.40s is null or empty", name, strings.ToUpper(p.text("op")))
	}
	return p.text(name), nil
}

// mode is a parameter of permission bits, in octal.
func (p params) mode(name string, without fs.FileMode) (fs.FileMode, error) {
	if !p.has(name) {
		return without, nil
	}
	v := p.text(name)
	m, err := filemode.Parse(v)
	if err != nil {
		return 0, &badParam{name, fmt.Sprintf("Failed to parse %q as permission bits; they are octal, 0 to 1777", v)}
	}
	return m, nil
}

// octal is the reverse of mode.
func octal(m fs.FileMode) string { return strconv.FormatUint(uint64(filemode.Unix(m)), 8) }

// millis is a parameter of a time in ms since 1970, and whether it is there:
// Hadoop says -1 for what is to stay.
func (p params) millis(name string) (t time.Time, ok bool, err error) {
	n, err := p.number(name, -1, -1, maxMillis)
	if err != nil || n < 0 {
		return t, false, err
	}
	return time.UnixMilli(n), true, nil
}

// maxMillis is the end of the year 9999.
const maxMillis = 253402300799999

// replication and blockSize are what CREATE and SETREPLICATION say; 0 if they do not.
func (p params) replication() (int64, error) {
	return p.number("replication", 0, 1, math.MaxInt16)
}
func (p params) blockSize() (int64, error) { return p.number("blocksize", 0, 1, hadoop.MaxBlockSize) }

// xattrMode is the parameter flag of SETXATTR: CREATE, REPLACE, or both.
func (p params) xattrMode() (client.XattrMode, error) {
	words := map[string]bool{}
	for w := range strings.SplitSeq(strings.ToUpper(p.text("flag")), ",") {
		switch w = strings.TrimSpace(w); w {
		case "", "NULL":
		case "CREATE", "REPLACE":
			words[w] = true
		default:
			return 0, &badParam{"flag", fmt.Sprintf("%.40q is none of CREATE, REPLACE", w)}
		}
	}
	switch {
	case words["CREATE"] == words["REPLACE"]:
		return client.XattrAny, nil
	case words["CREATE"]:
		return client.XattrCreate, nil
	default:
		return client.XattrReplace, nil
	}
}

// options are the words of renameoptions; ok is false if there is no such
// parameter, which is the older call with an answer instead of errors.
func (p params) renameOptions() (overwrite, ok bool, err error) {
	if !p.has("renameoptions") {
		return false, false, nil
	}
	for w := range strings.SplitSeq(strings.ToUpper(p.text("renameoptions")), ",") {
		switch strings.TrimSpace(w) {
		case "NONE", "TO_TRASH":
		case "OVERWRITE":
			overwrite = true
		default:
			return false, false, &badParam{"renameoptions", fmt.Sprintf("%.40q is none of NONE, OVERWRITE, TO_TRASH", w)}
		}
	}
	return overwrite, true, nil
}
