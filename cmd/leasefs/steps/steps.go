// Package steps parses the steps of a transaction as people write them: one a line, its
// words separated by spaces, those that contain spaces in double quotes.
package steps

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/filemode"
)

// Step adds one compare or operation to a transaction.
type Step func(*client.Tx)

// Script is what a transaction consists of.
type Script struct {
	Compares, Operations []Step
	// Leases has a key for each lease that the steps name, by its id or its name. The ids
	// have to be put in before the steps are used.
	Leases map[string]client.LeaseID
}

// Parse reads steps, one a line of each text, and skips empty lines and those that begin
// with #. Directories get dirMode unless their step gives a mode. The error says which line
// is wrong, counted over all texts, and how.
func Parse(dirMode fs.FileMode, texts ...string) (*Script, error) {
	n, script := 0, &Script{Leases: make(map[string]client.LeaseID)}
	for _, text := range texts {
		text = strings.TrimPrefix(text, "\ufeff") // a byte order mark, which some editors write
		for line := range strings.Lines(text) {
			n++
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' {
				continue
			}
			words, err := split(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			step, err := parse(words, dirMode, script.Leases)
			switch {
			case err != nil:
				return nil, fmt.Errorf("line %d: %w", n, err)
			case words[0] == "if":
				script.Compares = append(script.Compares, step)
			default:
				script.Operations = append(script.Operations, step)
			}
		}
	}
	return script, nil
}

// split cuts a line into words.
func split(line string) (words []string, err error) {
	for line != "" {
		word, rest := line, ""
		if line[0] == '"' {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, fmt.Errorf("%s has no end, or a \\ before what it cannot stand before", line)
			}
			rest = line[len(quoted):]
			if rest != "" && !unicode.IsSpace(rune(rest[0])) {
				return nil, fmt.Errorf("no space behind %s", quoted)
			}
			if word, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("%s cannot be read", quoted)
			}
		} else if i := strings.IndexFunc(line, unicode.IsSpace); i >= 0 {
			word, rest = line[:i], line[i:]
		}
		words = append(words, word)
		line = strings.TrimLeftFunc(rest, unicode.IsSpace)
	}
	return words, nil
}

// form is how a kind of step is written, and what it does with its operands.
type form struct {
	usage   string // the words; those in capitals are operands, those in [] optional
	flags   string // the names of the flags that it takes
	min     int    // operands
	prepare func(o operands) (Step, error)
}

// operands are what follows the words that name a step.
type operands struct {
	args    []string
	flags   map[string]string
	dirMode fs.FileMode
	leases  map[string]client.LeaseID // of the script
}

// lease notes that a lease is named, and returns how to get its id later.
func (o operands) lease(name string) (id func() client.LeaseID, err error) {
	if name == "" {
		return nil, errors.New("the LEASE is empty; give its id or its name")
	}
	o.leases[name] = 0
	return func() client.LeaseID { return o.leases[name] }, nil
}

func (o operands) has(flag string) bool { _, ok := o.flags[flag]; return ok }

// forms are all steps, each by its first words.
var forms = map[string]form{
	"if exists": {usage: "if exists PATH", min: 1, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.IfExists(o.args[0]) }, nil
	}},
	"if missing": {usage: "if missing PATH", min: 1, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.IfMissing(o.args[0]) }, nil
	}},
	"if inode": {usage: "if inode PATH NUMBER", min: 2, prepare: number(func(t *client.Tx, path string, n uint64) { t.IfInode(path, n) })},
	"if epoch": {usage: "if epoch PATH NUMBER", min: 2, prepare: number(func(t *client.Tx, path string, n uint64) { t.IfEpoch(path, n) })},
	"if length": {usage: "if length PATH BYTES", min: 2, prepare: number(func(t *client.Tx, path string, n uint64) {
		t.IfLength(path, int64(n)) //nolint:gosec // number takes 63 bits
	})},
	"if xattr": {usage: "if xattr PATH NAME VALUE", min: 3, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.IfXattr(o.args[0], o.args[1], o.args[2]) }, nil
	}},
	"if lease": {usage: "if lease ID", min: 1, prepare: func(o operands) (Step, error) {
		id, err := client.ParseLeaseID(o.args[0])
		if err != nil {
			err = fmt.Errorf("%q is no id of a lease; a name is none, since it may be a successor's by now", o.args[0])
		}
		return func(t *client.Tx) { t.IfLease(id) }, err
	}},
	"create": {usage: "create [-p] [-m MODE] [--lease LEASE] PATH [CONTENT]", flags: "-p -m= --lease=", min: 1, prepare: file((*client.Tx).Create)},
	"write":  {usage: "write [-p] [-m MODE] [--lease LEASE] PATH [CONTENT]", flags: "-p -m= --lease=", min: 1, prepare: file((*client.Tx).Write)},
	"mkdir": {usage: "mkdir [-p] [-m MODE] PATH", flags: "-p -m=", min: 1, prepare: func(o operands) (Step, error) {
		mode := o.dirMode
		var err error
		if o.has("-m") {
			mode, err = octal(o.flags["-m"])
		}
		return func(t *client.Tx) { t.Mkdir(o.args[0], mode, o.has("-p")) }, err
	}},
	"mv": {usage: "mv [--overwrite] FROM TO", flags: "--overwrite", min: 2, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.Rename(o.args[0], o.args[1], o.has("--overwrite")) }, nil
	}},
	"rm": {usage: "rm PATH", min: 1, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.Remove(o.args[0]) }, nil
	}},
	"attach": {usage: "attach LEASE PATH", min: 2, prepare: func(o operands) (Step, error) {
		id, err := o.lease(o.args[0])
		return func(t *client.Tx) { t.Attach(id(), o.args[1]) }, err
	}},
	"detach": {usage: "detach PATH", min: 1, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.Detach(o.args[0]) }, nil
	}},
	"xattr set": {usage: "xattr set PATH NAME VALUE", min: 3, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.SetXattr(o.args[0], o.args[1], o.args[2]) }, nil
	}},
	"xattr rm": {usage: "xattr rm PATH NAME", min: 2, prepare: func(o operands) (Step, error) {
		return func(t *client.Tx) { t.RemoveXattr(o.args[0], o.args[1]) }, nil
	}},
}

// number makes a compare with a number.
func number(add func(t *client.Tx, path string, n uint64)) func(operands) (Step, error) {
	return func(o operands) (Step, error) {
		n, err := strconv.ParseUint(o.args[1], 10, 63)
		if err != nil {
			return nil, fmt.Errorf("%q is no number", o.args[1])
		}
		return func(t *client.Tx) { add(t, o.args[0], n) }, nil
	}
}

// file makes an operation that makes a file.
func file(add func(t *client.Tx, path string, data []byte, opts ...client.OpenOption) *client.Tx) func(operands) (Step, error) {
	return func(o operands) (Step, error) {
		var opts []client.OpenOption
		if o.has("-p") {
			opts = append(opts, client.WithParents())
		}
		if o.has("-m") {
			mode, err := octal(o.flags["-m"])
			if err != nil {
				return nil, err
			}
			opts = append(opts, client.WithMode(mode))
		}
		data := []byte(strings.Join(o.args[1:], ""))
		if !o.has("--lease") {
			return func(t *client.Tx) { add(t, o.args[0], data, opts...) }, nil
		}
		id, err := o.lease(o.flags["--lease"])
		return func(t *client.Tx) { add(t, o.args[0], data, append(opts, client.WithLease(id()))...) }, err
	}
}

func octal(s string) (fs.FileMode, error) {
	m, err := filemode.Parse(s)
	if err != nil {
		return 0, fmt.Errorf("-m: %w", err)
	}
	return m, nil
}

// parse makes a step of its words.
func parse(words []string, dirMode fs.FileMode, leases map[string]client.LeaseID) (Step, error) {
	f, ok := forms[words[0]]
	rest := words[1:]
	if !ok && len(rest) > 0 {
		f, ok = forms[words[0]+" "+rest[0]]
		rest = rest[1:]
	}
	if !ok {
		return nil, fmt.Errorf("there is no step %q; steps are %s", words[0], Names())
	}
	o := operands{flags: make(map[string]string), dirMode: dirMode, leases: leases}
	known := strings.Fields(f.flags)
	for ended := false; len(rest) > 0; {
		word := rest[0]
		rest = rest[1:]
		switch {
		case ended || word == "-" || !strings.HasPrefix(word, "-"):
			o.args = append(o.args, word)
			ended = true // after a path, what begins with - is no option
		case word == "--":
			ended = true
		case slices.Contains(known, word):
			o.flags[word] = ""
		case slices.Contains(known, word+"=") && len(rest) > 0:
			o.flags[word], rest = rest[0], rest[1:]
		default:
			return nil, fmt.Errorf("%s is no option here, or lacks its value; the step is %s", word, f.usage)
		}
	}
	most := f.min
	if strings.HasSuffix(f.usage, "[CONTENT]") {
		most++
	}
	if len(o.args) < f.min || len(o.args) > most {
		return nil, fmt.Errorf("%d words behind the name do not fit; the step is %s", len(o.args), f.usage)
	}
	return f.prepare(o)
}

// Names are the words with which steps begin, in order.
func Names() string {
	var names []string
	for name := range forms {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
