package posixacl

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// CondExec is a bit of Entry.Perm that ParseEntries gives for an X: execute for a directory,
// and for a file that somebody may execute. Resolve settles it.
const CondExec = 8

// Resolve settles CondExec of all entries.
func (a ACL) Resolve(mayExecute bool) ACL {
	out := append(ACL(nil), a...)
	for i := range out {
		if out[i].Perm&CondExec != 0 {
			out[i].Perm &^= CondExec
			if mayExecute {
				out[i].Perm |= 1
			}
		}
	}
	return out
}

var tagNames = [...]string{Owner: "user", User: "user", OwningGroup: "group", Group: "group", Mask: "mask", Other: "other"}

// Perms is permission bits as three characters, such as r-x.
func Perms(p uint8) string {
	out := []byte("---")
	for i, c := range []byte("rwx") {
		if p>>(2-i)&1 != 0 {
			out[i] = c
		}
	}
	return string(out)
}

// who is the entry without its permissions.
func (e Entry) who() string {
	if int(e.Tag) >= len(tagNames) {
		return fmt.Sprintf("entry of tag %d", e.Tag)
	}
	prefix := ""
	if e.Default {
		prefix = "default:"
	}
	return prefix + tagNames[e.Tag] + ":" + escape(e.Name) + ":"
}

// String is the entry as getfacl writes it: default:user:alice:r-x.
func (e Entry) String() string { return e.who() + Perms(e.Perm) }

// Strings are the entries as String has them.
func (a ACL) Strings() []string {
	out := make([]string, len(a))
	for i, e := range a {
		out[i] = e.String()
	}
	return out
}

// String is the list in one line, with commas.
func (a ACL) String() string { return strings.Join(a.Strings(), ",") }

// Effective is what an entry is worth under the mask of its part.
func (a ACL) Effective(e Entry) uint8 {
	if m, ok := a.Get(e.Default, Mask, ""); ok && (e.Tag.named() || e.Tag == OwningGroup) {
		return e.Perm & m.Perm
	}
	return e.Perm
}

// Long is the list as getfacl writes it: a line an entry, with what it is worth if that is less.
func (a ACL) Long() string {
	var b strings.Builder
	for _, e := range a {
		b.WriteString(e.String())
		if now := a.Effective(e); now != e.Perm {
			b.WriteString("\t#effective:" + Perms(now))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// special are characters that a name is not written with as it is.
func special(r rune) bool {
	return strings.ContainsRune(`\:,#=`, r) || unicode.IsSpace(r) || !unicode.IsPrint(r)
}

// escape writes a name so that it can stand in a list.
func escape(name string) string {
	if strings.IndexFunc(name, special) < 0 {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c < 0x80 && !special(rune(c)) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, `\%03o`, c)
		}
	}
	return b.String()
}

// unescape is the reverse.
func unescape(text string) string {
	if strings.IndexByte(text, '\\') < 0 {
		return text
	}
	b := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		if text[i] == '\\' && i+3 < len(text) {
			if n, err := strconv.ParseUint(text[i+1:i+4], 8, 8); err == nil {
				b = append(b, byte(n))
				i += 3
				continue
			}
		}
		b = append(b, text[i])
	}
	return string(b)
}

// ParseEntries reads entries as getfacl writes them and setfacl takes them: with commas or a
// line each, user:NAME:PERMS, group:NAME:PERMS, mask::PERMS and other::PERMS, with or without
// default: before them; without NAME it is the owner, or the owning group. The first letter
// of a word is enough. PERMS are some of rwxX- or a digit. What follows a # does not count.
// noPerms: the entries are to be removed, and may lack their permissions. The order is that
// of the text. Errors are of kind InvalidArgument and name the entry.
func ParseEntries(text string, noPerms bool) (ACL, error) {
	var out ACL
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		for word := range strings.SplitSeq(line, ",") {
			if word = strings.TrimSpace(word); word == "" {
				continue
			}
			e, err := parseEntry(word, noPerms)
			if err != nil {
				return nil, err
			}
			if out = append(out, e); len(out) > mostGiven {
				return nil, invalid("more than %d entries are given", mostGiven)
			}
		}
	}
	return out, nil
}

// Parse is ParseEntries of a whole list, in order and checked.
func Parse(text string) (ACL, error) {
	a, err := ParseEntries(text, false)
	if err != nil {
		return nil, err
	}
	a = sort(a)
	return a, a.Check()
}

func parseEntry(word string, noPerms bool) (e Entry, err error) {
	fields := strings.Split(word, ":")
	if is(fields[0], "default") {
		e.Default, fields = true, fields[1:]
	}
	wrong := func(why string) (Entry, error) {
		return Entry{}, invalid("%q is no entry: %s. One is like user:alice:r-x, group::rw-, mask::r-x or default:user:alice:rwx", clip(word), why)
	}
	if len(fields) == 0 {
		return wrong("it ends after default:")
	}
	switch kind := fields[0]; {
	case is(kind, "user"):
		e.Tag = Owner
	case is(kind, "group"):
		e.Tag = OwningGroup
	case is(kind, "mask"):
		e.Tag = Mask
	case is(kind, "other"):
		e.Tag = Other
	case len(fields) == 2 && kind != "": // setfacl takes alice:rwx for user:alice:rwx
		e.Tag, fields = Owner, append([]string{"user"}, fields...)
	default:
		return wrong("it begins with none of user, group, mask, other and default")
	}
	fields = fields[1:]
	if plain := e.Tag == Mask || e.Tag == Other; plain && len(fields) == 1 && fields[0] != "" {
		fields = []string{"", fields[0]} // m:rx
	}
	if len(fields) > 2 {
		return wrong("it has too many colons")
	}
	if len(fields) > 0 && fields[0] != "" {
		switch e.Tag {
		case Owner:
			e.Tag = User
		case OwningGroup:
			e.Tag = Group
		default:
			return wrong("mask and other have no name")
		}
		e.Name = unescape(strings.TrimSpace(fields[0]))
	}
	perms := ""
	if len(fields) == 2 {
		perms = strings.TrimSpace(fields[1])
	}
	if perms == "" {
		if noPerms {
			return e, nil
		}
		return wrong("it has no permissions")
	}
	p, ok := parsePerms(perms)
	if !ok {
		return wrong("its permissions are not some of r, w, x, X and -, or a digit from 0 to 7")
	}
	e.Perm = p
	return e, nil
}

// is reports whether a word is a name or its first letter.
func is(word, name string) bool { return word == name || word == name[:1] }

func clip(s string) string { return s[:min(len(s), 100)] }

func parsePerms(s string) (p uint8, ok bool) {
	if len(s) == 1 && s[0] >= '0' && s[0] <= '7' {
		return s[0] - '0', true
	}
	if len(s) > 8 {
		return 0, false
	}
	for _, c := range []byte(s) {
		switch c {
		case 'r':
			p |= 4
		case 'w':
			p |= 2
		case 'x':
			p |= 1
		case 'X':
			p |= CondExec
		case '-':
		default:
			return 0, false
		}
	}
	return p, true
}
