package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
)

// saysJSON finds --json, or LEASEFS_JSON, before anything is parsed, so that an
// error in the command line itself is printed in the form asked for.
func saysJSON(argv []string) bool {
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

// arrange sorts a command line into the order that the parser needs: global
// flags, command, its flags, "--", operands. So flags may stand before, after
// and between operands, single-letter flags may be joined (-lR, -n5), and
// global flags may follow the command. Everything after "--" is an operand.
func arrange(app *cli.App, argv []string) ([]string, error) {
	a := arranger{level: app.Commands, global: app.Flags}
	for len(argv) > 0 {
		arg := argv[0]
		argv = argv[1:]
		switch {
		case arg == "--":
			a.operands = append(a.operands, argv...)
			argv = nil
		case a.isFlag(arg):
			if a.op() == "lock" && len(a.operands) > 1 {
				return nil, a.withoutDashes(arg)
			}
			rest, err := a.flag(arg, argv)
			if err != nil {
				return nil, a.ofLock(err, argv)
			}
			argv = rest
		case len(a.level) > 0:
			if err := a.command(arg); err != nil {
				return nil, err
			}
		default:
			a.operands = append(a.operands, arg)
		}
	}
	return a.result()
}

type arranger struct {
	level  []*cli.Command // commands that may come next; empty at a leaf
	cur    *cli.Command   // the command so far; nil before the first word
	global []cli.Flag

	help                            bool
	globals, chain, flags, operands []string
}

// op is the command so far, for error lines.
func (a *arranger) op() string { return strings.Join(a.chain, " ") }

func (a *arranger) isFlag(arg string) bool {
	if len(arg) < 2 || arg[0] != '-' {
		return false
	}
	// chmod -w PATH, chmod -rwx PATH: a mode, not flags.
	return !(a.op() == "chmod" && strings.Trim(arg[1:], "rwxXst") == "")
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
	return usagef(a.op(), "unknown command %q%s", word, suggest(word, commandNames(a.level)))
}

// withoutDashes is the error of a flag behind the command that lock is to run:
// it may be meant for either of the two.
func (a *arranger) withoutDashes(arg string) error {
	return usagef("lock", "%s stands behind the command %s: put -- before the command (leasefs lock [options] PATH -- %[2]s %[1]s)", arg, a.operands[1])
}

// ofLock makes an error in a global flag one of lock's if that is the command
// that follows: its exit codes are others.
func (a *arranger) ofLock(err error, rest []string) error {
	for _, word := range rest {
		if a.cur != nil || word == "--" {
			break
		}
		if slices.ContainsFunc(a.level, func(c *cli.Command) bool { return c.HasName(word) }) {
			if word == "lock" {
				return lockFailure{err}
			}
			break
		}
	}
	return err
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
				return nil, usagef(a.op(), "%s takes no value, or true or false", dashed(name))
			}
			name += "=" + value
		}
		a.file(f, dashed(name))
		return rest, nil
	}
	if !hasValue {
		if len(rest) == 0 {
			return nil, usagef(a.op(), "%s needs a value", dashed(name))
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
			return nil, usagef(a.op(), "-%s needs a value", name)
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
		d, err := parseDuration(value)
		if err != nil || d < 0 && name != "ttl" {
			return usagef(a.op(), "%s: %q is not a duration such as 500ms, 30s or 5m, nor a number of seconds", dashed(name), value)
		}
		value = d.String()
	case *cli.IntFlag, *cli.Int64Flag:
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 0 {
			return usagef(a.op(), "%s: %q is not a whole number from 0 on", dashed(name), value)
		}
		value = strconv.FormatInt(n, 10) // the parser would take 0100 for octal
	case *cli.Uint64Flag:
		n, err := strconv.ParseUint(value, 10, 64)
		if err != nil {
			return usagef(a.op(), "%s: %q is not a whole number from 0 on", dashed(name), value)
		}
		value = strconv.FormatUint(n, 10)
	}
	a.file(f, dashed(name)+"="+value)
	return nil
}

// parseDuration reads 500ms, 30s or 5m, or a plain number of seconds.
func parseDuration(s string) (time.Duration, error) {
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		s += "s"
	}
	return time.ParseDuration(s)
}

// file puts a flag where its owner finds it.
func (a *arranger) file(f cli.Flag, text string) {
	if slices.Contains(a.global, f) {
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
	for _, list := range [][]cli.Flag{own, a.global} {
		for _, f := range list {
			if slices.Contains(f.Names(), name) {
				return f
			}
		}
	}
	return nil
}

func (a *arranger) unknown(arg, name string) error {
	flag := dashed(name)
	if flag != arg && len(name) == 1 {
		flag += " in " + arg
	}
	var names []string
	if a.cur != nil {
		names = flagNames(a.cur.Flags)
	}
	hint := ""
	if len(name) > 1 {
		hint = suggest(name, append(names, flagNames(a.global)...))
	}
	return usagef(a.op(), "unknown flag %s%s", flag, hint)
}

func (a *arranger) result() ([]string, error) {
	out := slices.Concat(a.globals, a.chain)
	switch {
	case a.help:
		return append(out, "--help"), nil
	case slices.Contains(a.globals, "--version"):
		return []string{"--version"}, nil
	case a.cur == nil:
		return nil, usagef("", "no command given")
	case len(a.level) > 0:
		return nil, usagef(a.op(), "needs a command: %s", strings.Join(commandNames(a.level), ", "))
	}
	out = append(out, a.flags...)
	return append(append(out, "--"), a.operands...), nil
}

func isBool(f cli.Flag) bool {
	_, ok := f.(*cli.BoolFlag)
	return ok
}

func dashed(name string) string {
	if bare, _, _ := strings.Cut(name, "="); len(bare) == 1 {
		return "-" + name
	}
	return "--" + name
}

func commandNames(list []*cli.Command) []string {
	var names []string
	for _, c := range list {
		names = append(names, c.Name)
	}
	return names
}

func flagNames(list []cli.Flag) []string {
	var names []string
	for _, f := range list {
		names = append(names, f.Names()[0])
	}
	return names
}

// suggest names the candidate that a mistyped word probably meant. Few mistype the
// first letter, and a word with another one may mean the opposite: rmdir, mkdir.
func suggest(word string, candidates []string) string {
	best, at := "", 3
	for _, c := range candidates {
		if d := distance(word, c); d < at && d < len(c) && word[:1] == c[:1] {
			best, at = c, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; is %q meant?", best)
}

// distance is the Levenshtein distance of two short words.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
