package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/lowlevel"
)

func chmodCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "chmod",
		Usage:       "change permissions",
		UsageText:   "leasefs chmod [-R] MODE PATH...\n\nExample:\n  leasefs chmod g+w,o-rwx /shared",
		Description: "Sets the permission bits: octal (0640) or symbolic (u+x, go-w, a=rX). Links are followed; with\n-R those inside the tree are left alone.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "recursive", Aliases: []string{"R"}, Usage: "all that is below, too"}},
		Action:      reading(p, operands{min: 2, max: -1, names: "MODE and at least one PATH", local: true}, newMode, chmod),
	}
}

func newMode(e *invocation) (func(fs.FileMode) fs.FileMode, error) {
	change, err := parseMode(e.args[0])
	if err != nil {
		return nil, argv.Usagef(e.op, "%v", err)
	}
	return change, e.pathsAfterFirst()
}

func chmod(e *invocation, change func(fs.FileMode) fs.FileMode) error {
	return e.setAttr(func(i *client.FileInfo) client.AttrChange {
		return client.AttrChange{SetMode: true, Mode: change(i.Mode())}
	})
}

func chownCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:        "chown",
		Usage:       "change user and group",
		UsageText:   "leasefs chown [-R] USER[:GROUP] PATH...\n\nExample:\n  leasefs chown -R web:staff /www",
		Description: "Sets the user, the group (:GROUP), or both. The user can be changed only by the superuser. Links\nare followed; with -R those inside the tree are left alone.",
		Flags:       []cli.Flag{&cli.BoolFlag{Name: "recursive", Aliases: []string{"R"}, Usage: "all that is below, too"}},
		Action: p.connected(operands{min: 2, max: -1, names: "USER[:GROUP] and at least one PATH", local: true}, func(e *invocation) error {
			user, group, _ := strings.Cut(e.args[0], ":")
			return e.setAttr(func(*client.FileInfo) client.AttrChange {
				return client.AttrChange{User: user, Group: group}
			})
		}, func(e *invocation) error {
			user, group, colon := strings.Cut(e.args[0], ":")
			if user == "" && group == "" || colon && group == "" {
				return argv.Usagef(e.op, "%q is not USER, USER:GROUP or :GROUP", e.args[0])
			}
			return e.pathsAfterFirst()
		}),
	}
}

// setAttr changes each path after the first operand and, with --recursive, all
// below it but symbolic links.
func (e *invocation) setAttr(change func(*client.FileInfo) client.AttrChange) error {
	e.args = e.args[1:]
	return e.each(func(path string) error {
		if e.flags.Bool("recursive") {
			return e.fail(lowlevel.Of(e.fs).SetAttrAll(e.ctx, path, change), path)
		}
		info, err := e.fs.Stat(e.ctx, path)
		if err == nil {
			err = lowlevel.Of(e.fs).SetAttrInode(e.ctx, info.Inode, path, change(info))
		}
		return e.fail(err, path)
	})
}

// touch sets the time of what exists, and makes what does not.
func (e *invocation) touch(path string) error {
	err := e.fs.Chtimes(e.ctx, path, time.Now())
	if fserror.KindOf(err) != fserror.NotFound || err == nil {
		return e.fail(err, path)
	}
	if e.flags.Bool("no-create") {
		return nil
	}
	err = e.fs.WriteFile(e.ctx, path, nil)
	if fserror.KindOf(err) == fserror.Exists { // another was faster
		err = e.fs.Chtimes(e.ctx, path, time.Now())
	}
	return e.fail(err, path)
}

// parseMode reads an octal or symbolic mode as a change of an old one.
func parseMode(s string) (func(old fs.FileMode) fs.FileMode, error) {
	if s != "" && strings.Trim(s, "01234567") == "" {
		mode, err := filemode.Parse(s)
		return func(fs.FileMode) fs.FileMode { return mode }, err
	}
	var changes []modeChange
	for clause := range strings.SplitSeq(s, ",") {
		list, err := parseClause(clause)
		if err != nil {
			return nil, fmt.Errorf("%q is not a mode such as 0640 or u+x,go-w: %w", s, err)
		}
		changes = append(changes, list...)
	}
	return func(old fs.FileMode) fs.FileMode {
		mode := old & filemode.Changeable
		for _, c := range changes {
			mode = c.apply(mode, old.IsDir())
		}
		return mode
	}, nil
}

// modeChange is one operator of a symbolic mode with its permissions.
type modeChange struct {
	who   fs.FileMode // the bits of those it is about: 0700, 0070, 0007
	op    byte        // + - =
	perms string      // of rwxXt
}

// parseClause reads one of the clauses between commas, such as go-w+x.
func parseClause(clause string) ([]modeChange, error) {
	i := strings.IndexAny(clause, "+-=")
	if i < 0 {
		return nil, errors.New("it has none of + - =")
	}
	var who fs.FileMode
	for _, c := range clause[:i] {
		bits, ok := map[rune]fs.FileMode{'u': 0o700, 'g': 0o070, 'o': 0o007, 'a': 0o777}[c]
		if !ok {
			return nil, fmt.Errorf("%q is none of u, g, o, a", c)
		}
		who |= bits
	}
	if who == 0 {
		who = 0o777
	}
	var list []modeChange
	for rest := clause[i:]; rest != ""; {
		end := strings.IndexAny(rest[1:], "+-=") + 1
		if end == 0 {
			end = len(rest)
		}
		c := modeChange{who, rest[0], rest[1:end]}
		if bad := strings.Trim(c.perms, "rwxXt"); bad != "" {
			return nil, fmt.Errorf("%q is none of r, w, x, X, t", bad[:1])
		}
		list, rest = append(list, c), rest[end:]
	}
	return list, nil
}

func (c modeChange) apply(mode fs.FileMode, dir bool) fs.FileMode {
	var bits fs.FileMode
	for _, p := range c.perms {
		switch p {
		case 'r':
			bits |= 0o444
		case 'w':
			bits |= 0o222
		case 'x':
			bits |= 0o111
		case 'X':
			if dir || mode&0o111 != 0 {
				bits |= 0o111
			}
		case 't':
			bits |= fs.ModeSticky
		}
	}
	bits &= c.who | fs.ModeSticky
	switch c.op {
	case '+':
		return mode | bits
	case '-':
		return mode &^ bits
	}
	return mode&^c.who | bits
}
