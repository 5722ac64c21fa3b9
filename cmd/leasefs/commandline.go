package main

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// commandLine is what was typed after the program's name. Its methods read and
// check that, and name the command in errors.
type commandLine struct {
	flags *cli.Context
	op    string   // the command, such as "lease ls"
	args  []string // the operands
}

// operands says how many arguments a command takes.
type operands struct {
	min, max int    // max < 0: any number
	names    string // as in the usage line
	local    bool   // they are no paths of the namespace
}

// path checks and cleans a path of the namespace that was typed.
func (c *commandLine) path(s string) (string, error) {
	path, err := fspath.Clean(s)
	if err != nil {
		return "", argv.Usagef(c.op, "%s", err)
	}
	return path, nil
}

// fail names an error after the command, and after path if it names none. Nil
// stays nil.
func (c *commandLine) fail(err error, path string) error {
	var f *fserror.Error
	if err == nil || !errors.As(err, &f) {
		return fserror.With(err, c.op, path)
	}
	named := *f
	named.Op = c.op
	named.Message += c.remedy(f)
	named.Path = cmp.Or(named.Path, path)
	return &named
}

// remedy names the flag of the command that prevents an error, if it has one that was
// not given.
func (c *commandLine) remedy(f *fserror.Error) string {
	offers := func(name string) bool {
		return !c.flags.Bool(name) && slices.Contains(argv.FlagNames(c.flags.Command.Flags), name)
	}
	noDir := strings.HasPrefix(f.Message, "no such directory: ")
	switch {
	case screen.Advised(f):
	case f.Kind == fserror.Exists && offers("overwrite"):
		return "; --overwrite replaces a file"
	case f.Kind == fserror.Exists && c.op == "register" && offers("wait"):
		return "; --wait waits until it is gone"
	case f.Kind == fserror.NotFound && offers("create") && offers("parents"):
		return "; --create makes it, with -p also missing directories"
	case f.Kind == fserror.NotFound && noDir && offers("parents") && (c.op != "get" || f.Path == c.args[len(c.args)-1]):
		return "; -p makes missing directories"
	}
	return ""
}

// atLeast refuses a value of a duration's flag that means nothing. The library takes
// its default for 0, and nobody who gives 0 means that.
func (c *commandLine) atLeast(flag string, least time.Duration) error {
	if d := c.flags.Duration(flag); c.flags.IsSet(flag) && d < least {
		return argv.Usagef(c.op, "--%s: %s is too short; at least %s", flag, d, least)
	}
	return nil
}

// pathsAfterFirst cleans all operands but the first.
func (c *commandLine) pathsAfterFirst() error {
	for n := range c.args[1:] {
		path, err := c.path(c.args[n+1])
		if err != nil {
			return err
		}
		c.args[n+1] = path
	}
	return nil
}
