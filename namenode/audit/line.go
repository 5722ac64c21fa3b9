package audit

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leasefs/leasefs/internal/fserror"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// Line is what is known of a call. Paths are as they were asked for. It has nothing that
// proves or lets do: no token, no session's id but its public name, no URL, no content and no
// value of an attribute.
type Line struct {
	Time     time.Time
	Began    bool // a stream begins: it has another line when it ends
	User     string
	RealUser string // who has proven to be that, and acts for User; empty: User
	Unproven bool   // what was shown to prove it was not good, so User is only claimed
	Address  string
	Client   string
	Session  []byte // its id
	Call     uint64 // its number in the session; 0: it has none
	Op       string
	Reads    bool // it changes nothing
	ForGood  bool // it deletes what would be kept in the trash
	Inode    uint64
	Lease    uint64
	Token    uint64 // the number of a delegation token, which proves nothing
	Epoch    uint64
	TxID     uint64
	Took     time.Duration
	Err      error // nil: it was done

	few  [2]Path // the paths, so that most lines stay on the stack of their call
	n    int     // of few
	many []Path  // all paths, if they are more than few
	more uint64  // paths that are not among them
}

// Path is one that a call names.
type Path struct {
	Base uint64 // inode from which Path leads; 0: the root
	Path string
}

const (
	// maxText is how many bytes of one text a line has, and allPaths how many of all paths
	// together: a line must fit into what waits to be written, whatever is asked for.
	maxText  = 32 << 10 // as a path may have
	allPaths = 256 << 10
	maxPaths = 1024
	// maxClaim is how many bytes of a text a line has of who has proven nothing, and
	// maxClaims how many paths: with such lines he must not push others' out of the files.
	maxClaim, maxClaims = 256, 2
)

func (l *Line) denied() bool { return l.Err != nil && fserror.KindOf(l.Err) == fserror.Permission }

// append appends the line, as JSON, with a newline.
func (l *Line) append(b []byte) []byte {
	b = append(appendTime(append(b, `{"time":"`...), l.Time), '"')
	most, claim := maxText, maxText
	if l.Unproven {
		most, claim = 4*maxClaim, maxClaim
	}
	b = appendText(b, "user", l.User, claim)
	b = appendText(b, "real_user", l.RealUser, claim)
	b = appendText(b, "address", l.Address, claim)
	b = appendText(b, "client", l.Client, claim)
	if len(l.Session) > 0 {
		b = append(b, `,"session":"`...)
		b = append(append(b, sessionName(l.Session)...), '"')
	}
	b = appendNumber(b, "call", l.Call)
	b = appendText(b, "op", l.Op, most)
	b = l.appendPaths(b)
	b = appendNumber(b, "inode", l.Inode)
	if l.ForGood {
		b = append(b, `,"for_good":true`...)
	}
	if l.Lease != 0 {
		b = append(b, `,"lease":"`...)
		b = append(strconv.AppendUint(b, l.Lease, 16), '"')
	}
	b = appendNumber(b, "delegation_token", l.Token)
	b = appendNumber(b, "epoch", l.Epoch)
	b = appendNumber(b, "txid", l.TxID)
	switch {
	case l.Began:
		b = append(b, `,"result":"begun"`...)
	case l.Err == nil:
		b = append(b, `,"result":"ok"`...)
	default:
		result := "failed"
		if l.denied() {
			result = "denied"
		}
		b = appendText(b, "result", result, most)
		b = appendText(b, "kind", fserror.KindOf(l.Err).String(), most)
		b = appendText(b, "reason", fserror.ReasonOf(l.Err), most)
		b = appendText(b, "why", l.Err.Error(), most)
	}
	if !l.Began {
		b = append(b, `,"us":`...)
		b = strconv.AppendInt(b, l.Took.Microseconds(), 10)
	}
	return append(b, "}\n"...)
}

// appendPaths appends the path, or all of them as a list.
func (l *Line) appendPaths(b []byte) []byte {
	paths, more := l.paths(), l.more
	if l.Unproven && len(paths) > maxClaims {
		more += uint64(len(paths) - maxClaims) //nolint:gosec // it is larger
		paths = paths[:maxClaims]
	}
	most := min(maxText, allPaths/max(len(paths), 1))
	if l.Unproven {
		most = maxClaim
	}
	switch len(paths) {
	case 0:
		return b
	case 1:
		return paths[0].append(append(b, ','), most)
	}
	b = append(b, `,"paths":[`...)
	for i := range paths {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(paths[i].append(append(b, '{'), most), '}')
	}
	return appendNumber(append(b, ']'), "more_paths", more)
}

// append appends the members of a path.
func (p *Path) append(b []byte, most int) []byte {
	if p.Base != 0 {
		b = strconv.AppendUint(append(b, `"base":`...), p.Base, 10)
		b = append(b, ',')
	}
	return appendString(append(b, `"path":`...), p.Path, most)
}

// appendText appends a member, but for an empty text.
func appendText(b []byte, name, text string, most int) []byte {
	if text == "" {
		return b
	}
	b = append(append(b, ',', '"'), name...)
	return appendString(append(b, '"', ':'), text, most)
}

// appendNumber appends a member, but for 0.
func appendNumber(b []byte, name string, n uint64) []byte {
	if n == 0 {
		return b
	}
	b = append(append(b, ',', '"'), name...)
	return strconv.AppendUint(append(b, '"', ':'), n, 10)
}

// appendCount appends a line that says how many lines there are not.
func appendCount(b []byte, now time.Time, name string, n uint64) []byte {
	b = append(appendTime(append(b, `{"time":"`...), now), '"')
	return append(appendNumber(b, name, n), "}\n"...)
}

// second is one of the clock, as text.
type second struct {
	unix int64
	text string
}

// lastSecond spares most lines a conversion.
var lastSecond atomic.Pointer[second]

func appendTime(b []byte, t time.Time) []byte {
	s := lastSecond.Load()
	if u := t.Unix(); s == nil || s.unix != u {
		s = &second{u, t.UTC().Format("2006-01-02T15:04:05.")}
		lastSecond.Store(s)
	}
	b = append(b, s.text...)
	us := t.Nanosecond() / 1000
	for d := 100_000; d > 0; d /= 10 {
		b = append(b, '0'+byte(us/d%10))
	}
	return append(b, 'Z')
}

// named is a session and the name by which others know it.
type named struct {
	id   string
	name string
}

// names are those that were asked for last, each in the place that its id gives it: to work
// one out takes a third of the time of a line.
var names [1 << 10]atomic.Pointer[named]

// sessionName is the name of a session, hexadecimal.
func sessionName(id []byte) string {
	if len(id) != 16 { // of a client that is none
		return hex.EncodeToString(pb.SessionName(id))
	}
	at := &names[binary.LittleEndian.Uint64(id)%uint64(len(names))]
	n := at.Load()
	if n == nil || n.id != string(id) {
		n = &named{string(id), hex.EncodeToString(pb.SessionName(id))}
		at.Store(n)
	}
	return n.name
}

// appendString appends a JSON string of at most so many bytes. What does not print, or drives a terminal, is escaped.
func appendString(b []byte, s string, most int) []byte {
	cut := len(s) > most
	if cut {
		s = s[:most]
	}
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		if c := s[i]; c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 && cut && len(s)-i < utf8.UTFMax {
			s = s[:i] // its first bytes, cut off
			break
		}
		if n > 1 && unicode.IsPrint(r) {
			i += n
			continue
		}
		b = append(b, s[from:i]...)
		i += n
		from = i
		switch {
		case r == '"', r == '\\':
			b = append(b, '\\', byte(r))
		case r == utf8.RuneError:
			b = append(b, `\ufffd`...)
		case r > 0xffff:
			r -= 0x10000
			b = appendEscape(appendEscape(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
		default:
			b = appendEscape(b, r)
		}
	}
	b = append(b, s[min(from, len(s)):]...)
	if cut {
		b = append(b, "…"...)
	}
	return append(b, '"')
}

func appendEscape(b []byte, r rune) []byte {
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}
