package argv

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/internal/fserror"
)

// JSON tells whether a command line, or LEASEFS_JSON, asks for JSON, before anything
// is parsed: an error in the command line itself is printed in the form asked for.
func JSON(argv []string) bool {
	says, _ := strconv.ParseBool(os.Getenv("LEASEFS_JSON")) // what is neither is told by the parser
	for _, a := range argv {
		if a == "--" {
			break
		}
		name, value, hasValue := strings.Cut(a, "=")
		if name != "--json" && name != "-json" {
			continue
		}
		if b, err := strconv.ParseBool(value); err == nil || !hasValue {
			says = b || !hasValue
		}
	}
	return says
}

// Grammar is what a program's command lines are made of.
type Grammar struct {
	Commands []*cli.Command
	Global   []cli.Flag
	// Operand tells whether an argument of a command that begins with a dash is an
	// operand all the same.
	Operand func(op, arg string) bool
	// Runs reports whether everything after a command's first operand is a command line of
	// another program.
	Runs func(op string) bool
}

// Arrange sorts a command line into the order that the parser needs: global
// flags, command, its flags, "--", operands. So flags may stand before, after
// and between operands, single-letter flags may be joined (-lR, -n5), and
// global flags may follow the command. Everything after "--" is an operand.
//
// first is the first word of the command, also with an error. Errors are those of
// Usagef.
func Arrange(g Grammar, argv []string) (arranged []string, first string, err error) {
	a := arranger{Grammar: g, level: g.Commands}
	rest := argv
	for len(rest) > 0 {
		arg := rest[0]
		rest = rest[1:]
		switch {
		case arg == "--":
			a.operands = append(a.operands, rest...)
			rest = nil
		case a.isFlag(arg):
			if a.Runs(a.op()) && len(a.operands) > 1 {
				return nil, a.first(nil), a.withoutDashes(arg)
			}
			after, err := a.flag(arg, rest)
			if err != nil {
				return nil, a.first(rest), err
			}
			rest = after
		case len(a.level) > 0:
			if err := a.command(arg); err != nil {
				return nil, a.first(nil), err
			}
		default:
			a.operands = append(a.operands, arg)
		}
	}
	arranged, err = a.result()
	return arranged, a.first(nil), err
}

type arranger struct {
	Grammar
	level []*cli.Command // commands that may come next; empty at a leaf
	cur   *cli.Command   // the command so far; nil before the first word

	help                            bool
	globals, chain, flags, operands []string
}

// op is the command so far, for error lines.
func (a *arranger) op() string { return strings.Join(a.chain, " ") }

func (a *arranger) isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	return !a.Operand(a.op(), arg)
}

func (a *arranger) command(word string) error {
	if word == "help" {
		a.help = true
		return nil
	}
	for _, c := range a.level {
		if c.HasName(word) {
			a.chain = append(a.chain, c.Name)
			a.level, a.cur = c.Subcommands, c
			return nil
		}
	}
	if a.runs() { // it has commands, and does something itself
		a.level, a.operands = nil, append(a.operands, word)
		return nil
	}
	return Usagef(a.op(), "unknown command %q%s", word, Suggest(word, Names(a.level)))
}

// runs reports whether the command so far does something without one of its own commands.
func (a *arranger) runs() bool { return a.cur != nil && a.cur.Action != nil }

// withoutDashes is the error of a flag behind a command that is to be run: it may be
// meant for either of the two.
func (a *arranger) withoutDashes(arg string) error {
	return Usagef(a.op(), "%s stands behind the command %s: put -- before the command (leasefs %[3]s [options] PATH -- %[2]s %[1]s)", arg, a.operands[1], a.op())
}

// first is the first word of the command, or of the one that follows in rest.
func (a *arranger) first(rest []string) string {
	if len(a.chain) > 0 {
		return a.chain[0]
	}
	return First(a.level, rest)
}

// First is the command that a command line begins with, after its global flags; empty
// if it names none of them.
func First(commands []*cli.Command, argv []string) string {
	for _, word := range argv {
		if word == "--" {
			break
		}
		for _, c := range commands {
			if c.HasName(word) {
				return c.Name
			}
		}
	}
	return ""
}

// flag files one flag and its value; rest is what follows it.
func (a *arranger) flag(arg string, rest []string) ([]string, error) {
	name, value, hasValue := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if name == "help" || name == "h" && a.find("h") == nil {
		a.help = true
		return rest, nil
	}
	if a.cur == nil && (name == "version" || name == "v") {
		a.globals = append(a.globals, "--version")
		return rest, nil
	}
	f := a.find(name)
	if f == nil && !strings.HasPrefix(arg, "--") {
		return a.joined(arg, rest)
	}
	if f == nil {
		return nil, a.unknown(arg, name)
	}
	if isBool(f) {
		if hasValue {
			if _, err := strconv.ParseBool(value); err != nil {
				return nil, Usagef(a.op(), "%s takes no value, or true or false", Dashed(name))
			}
			name += "=" + value
		}
		a.file(f, Dashed(name))
		return rest, nil
	}
	if !hasValue {
		if len(rest) == 0 {
			return nil, Usagef(a.op(), "%s needs a value", Dashed(name))
		}
		value, rest = rest[0], rest[1:]
	}
	return rest, a.value(f, name, value)
}

// joined takes apart -lR, -n5 and -rn5.
func (a *arranger) joined(arg string, rest []string) ([]string, error) {
	letters := arg[1:]
	for i := range letters {
		name := letters[i : i+1]
		f := a.find(name)
		switch {
		case f == nil && letters[i] >= '1' && letters[i] <= '9' && a.find("n") != nil: // head -5
			return rest, a.value(a.find("n"), "n", letters[i:])
		case f == nil && name == "h":
			a.help = true
		case f == nil:
			return nil, a.unknown(arg, name)
		case isBool(f):
			a.file(f, "-"+name)
		case i+1 < len(letters):
			return rest, a.value(f, name, strings.TrimPrefix(letters[i+1:], "="))
		case len(rest) == 0:
			return nil, Usagef(a.op(), "-%s needs a value", name)
		default:
			return rest[1:], a.value(f, name, rest[0])
		}
	}
	return rest, nil
}

// value checks a value by the flag's type, so that a wrong one is told in one
// line of ours.
func (a *arranger) value(f cli.Flag, name, value string) error {
	switch f.(type) {
	case *cli.DurationFlag:
		// Of a time to live the command says itself what the least is.
		d, err := ParseDuration(value)
		if err != nil || d < 0 && name != "ttl" {
			return Usagef(a.op(), "%s: %q is not a duration such as 500ms, 30s or 5m, nor a number of seconds", Dashed(name), value)
		}
		value = d.String()
	case *cli.IntFlag, *cli.Int64Flag:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return Usagef(a.op(), "%s: %q is not a whole number from 0 on", Dashed(name), value)
		}
		value = strconv.FormatInt(n, 10) // the parser would take 0100 for octal
	case *cli.Uint64Flag:
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return Usagef(a.op(), "%s: %q is not a whole number from 0 on", Dashed(name), value)
		}
		value = strconv.FormatUint(n, 10)
	}
	a.file(f, Dashed(name)+"="+value)
	return nil
}

// ParseDuration reads 500ms, 30s or 5m, or a plain number of seconds.
func ParseDuration(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	return time.ParseDuration(s)
}

// file puts a flag where its owner finds it.
func (a *arranger) file(f cli.Flag, text string) {
	if slices.Contains(a.Global, f) {
		a.globals = append(a.globals, text)
		return
	}
	a.flags = append(a.flags, text)
}

// find looks a flag up: the command's own first, then the global ones.
func (a *arranger) find(name string) cli.Flag {
	var own []cli.Flag
	if a.cur != nil {
		own = a.cur.Flags
	}
	for _, list := range [][]cli.Flag{own, a.Global} {
		for _, f := range list {
			if slices.Contains(f.Names(), name) {
				return f
			}
		}
	}
	return nil
}

func (a *arranger) unknown(arg, name string) error {
	flag := Dashed(name)
	if flag != arg && len(name) == 1 {
		flag += " in " + arg
	}
	var names []string
	if a.cur != nil {
		names = FlagNames(a.cur.Flags)
	}
	hint := ""
	if len(name) > 1 {
		hint = Suggest(name, append(names, FlagNames(a.Global)...))
	}
	return Usagef(a.op(), "unknown flag %s%s", flag, hint)
}

func (a *arranger) result() ([]string, error) {
	out := slices.Concat(a.globals, a.chain)
	switch {
	case a.help:
		return append(out, "--help"), nil
	case slices.Contains(a.globals, "--version"):
		return []string{"--version"}, nil
	case a.cur == nil:
		return nil, Usagef("", "no command given")
	case len(a.level) > 0 && !a.runs():
		return nil, Usagef(a.op(), "needs a command: %s", strings.Join(Names(a.level), ", "))
	}
	out = append(out, a.flags...)
	return append(append(out, "--"), a.operands...), nil
}

func isBool(f cli.Flag) bool {
	_, ok := f.(*cli.BoolFlag)
	return ok
}

// Dashed is a flag's name with its dashes.
func Dashed(name string) string {
	if bare, _, _ := strings.Cut(name, "="); len(bare) == 1 {
		return "-" + name
	}
	return "--" + name
}

// Names are the names of commands.
func Names(list []*cli.Command) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

// FlagNames are the first names of flags.
func FlagNames(list []cli.Flag) []string {
	var names []string
	for _, f := range list {
		names = append(names, f.Names()[0])
	}
	return names
}

// DistinctNames refuses paths of which two have the same last name: in one directory, the second
// would take the place of the first.
func DistinctNames(op string, paths []string) error {
	by := map[string]string{}
	for _, p := range paths {
		name := path.Base(path.Clean(p))
		if other, twice := by[name]; twice {
			return Usagef(op, "%s and %s have the same name, and would take the same place", other, p)
		}
		by[name] = p
	}
	return nil
}

// Usagef is a wrong command line: exit code 2. The help command named in hint
// ends the line; op is the command, such as "lease ls", or empty.
func Usagef(op, format string, args ...any) error {
	hint := "leasefs --help"
	if op != "" {
		hint = "leasefs " + op + " --help"
	}
	return &fserror.Error{Op: op, Kind: fserror.InvalidArgument, Message: fmt.Sprintf(format, args...) + " (see " + hint + ")"}
}
