package main

import (
	"encoding/base64"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/cmd/leasefs/screen"
	"github.com/leasefs/leasefs/internal/fserror"
)

func xattrCommand(p *program) *cli.Command {
	return &cli.Command{
		Name:      "xattr",
		Usage:     "list, get, set and remove extended attributes",
		UsageText: "leasefs xattr COMMAND\n\nExample:\n  leasefs xattr set /data/a user.origin sensor-7\n  leasefs xattr get /data/a user.origin",
		Description: "Files and directories have extended attributes whose names begin with \"user.\". A name has at\n" +
			"most 255 bytes, a value 12,288, all of a file with their names 16,384. Links are followed. Who\n" +
			"may read a file may read them, who may write it may change them. On a mount they are those of\n" +
			"getfattr and setfattr; put -X and get -X keep them.",
		Subcommands: []*cli.Command{
			{
				Name:        "ls",
				Usage:       "list names",
				UsageText:   "leasefs xattr ls [-l] PATH\n\nExample:\n  leasefs xattr ls -l /data/a",
				Description: "Prints the names, one a line, in order. With -l NAME=VALUE: a value is quoted if it is text, else it\nis 0s and its bytes in base64, as getfattr writes it. Under --json both are there.",
				Flags:       []cli.Flag{&cli.BoolFlag{Name: "long", Aliases: []string{"l"}, Usage: "values, too"}},
				Action:      p.connected(operands{min: 1, max: 1, names: "PATH"}, listXattrs),
			},
			{
				Name:        "get",
				Usage:       "print a value",
				UsageText:   "leasefs xattr get PATH NAME\n\nExample:\n  leasefs xattr get /data/a user.origin",
				Description: "Prints the bytes of a value as they are, on a terminal with a line's end. Exit code 3 if the file has\nno such attribute.",
				Action:      p.connected(operands{min: 2, max: 2, names: "PATH NAME", local: true}, getXattr, firstIsPath),
			},
			{
				Name:        "set",
				Usage:       "set a value",
				UsageText:   "leasefs xattr set [--create | --replace] PATH NAME VALUE|-\n\nExample:\n  sha256sum < a | leasefs xattr set /data/a user.sha256 -",
				Description: "Sets a value; - is standard input, all its bytes. What begins with - otherwise stands behind --.",
				Flags: []cli.Flag{
					&cli.BoolFlag{Name: "create", Usage: "only if it is missing (else exit code 4)"},
					&cli.BoolFlag{Name: "replace", Usage: "only if it is there (else exit code 3)"},
				},
				Action: p.connected(operands{min: 3, max: 3, names: "PATH NAME VALUE", local: true}, setXattr, firstIsPath, checkSetXattr),
			},
			{
				Name:        "rm",
				Usage:       "remove attributes",
				UsageText:   "leasefs xattr rm PATH NAME...\n\nExample:\n  leasefs xattr rm /data/a user.origin",
				Description: "Removes attributes, in order, up to the first that is missing (exit code 3).",
				Action:      p.connected(operands{min: 2, max: -1, names: "PATH and at least one NAME", local: true}, removeXattrs, firstIsPath),
			},
		},
	}
}

// firstIsPath cleans the first operand.
func firstIsPath(e *invocation) (err error) {
	e.args[0], err = e.path(e.args[0])
	return err
}

// failXattr is fail for an attribute.
func (c *commandLine) failXattr(err error) error {
	path := c.args[0]
	var f *fserror.Error
	if client.IsNoXattr(err) && errors.As(err, &f) {
		return fserror.New(fserror.NotFound, c.op, path, "%s; leasefs xattr ls %s lists those that it has", f.Message, path)
	}
	return c.fail(err, path)
}

// xattrJSON is an extended attribute under --json: either of the values is null.
type xattrJSON struct {
	Path   string  `json:"path"`
	Name   string  `json:"name"`
	Length int     `json:"length"`       // of the value, in bytes
	Value  *string `json:"value"`        // if it is UTF-8
	Base64 *string `json:"value_base64"` // if it is not
}

func (e *invocation) printXattrJSON(name string, value []byte) error {
	j := xattrJSON{Path: e.args[0], Name: name, Length: len(value)}
	if utf8.Valid(value) {
		text := string(value)
		j.Value = &text
	} else {
		text := base64.StdEncoding.EncodeToString(value)
		j.Base64 = &text
	}
	return e.PrintJSON(j)
}

func listXattrs(e *invocation) error {
	all, err := e.fs.Xattrs(e.args[0]).All(e.ctx)
	if err != nil {
		return e.failXattr(err)
	}
	for _, x := range all {
		switch {
		case e.JSON:
			if err := e.printXattrJSON(x.Name, x.Value); err != nil {
				return err
			}
		case e.flags.Bool("long"):
			e.Printf("%s=%s\n", e.Name(x.Name), xattrText(x.Value))
		default:
			e.Printf("%s\n", e.Name(x.Name))
		}
	}
	return nil
}

// xattrText is a value on one line.
func xattrText(value []byte) string {
	text := string(value)
	if !utf8.Valid(value) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' && r != '\t' }) {
		return "0s" + base64.StdEncoding.EncodeToString(value)
	}
	return strconv.Quote(text)
}

func getXattr(e *invocation) error {
	value, err := e.fs.Xattrs(e.args[0]).Get(e.ctx, e.args[1])
	if err != nil {
		return e.failXattr(err)
	}
	if e.JSON {
		return e.printXattrJSON(e.args[1], value)
	}
	e.Printf("%s", value)
	if screen.IsTerminal(e.Stdout) {
		e.Printf("\n")
	}
	return nil
}

func checkSetXattr(e *invocation) error {
	if e.flags.Bool("create") && e.flags.Bool("replace") {
		return argv.Usagef(e.op, "--create and --replace exclude each other")
	}
	return nil
}

func setXattr(e *invocation) error {
	value := []byte(e.args[2])
	if e.args[2] == "-" {
		var err error
		if value, err = io.ReadAll(io.LimitReader(e.stdin, client.MaxXattrValue+1)); err != nil {
			return fserror.Wrap(fserror.Internal, "read standard input", "", err)
		}
	}
	if len(value) > client.MaxXattrValue {
		return fserror.New(fserror.TooLarge, e.op, e.args[0], "the value of %q has more than %d bytes, the limit; keep it in a file of its own", e.args[1], client.MaxXattrValue)
	}
	mode := client.XattrAny
	switch {
	case e.flags.Bool("create"):
		mode = client.XattrCreate
	case e.flags.Bool("replace"):
		mode = client.XattrReplace
	}
	return e.failXattr(e.fs.Xattrs(e.args[0]).Set(e.ctx, e.args[1], value, mode))
}

func removeXattrs(e *invocation) error {
	for _, name := range e.args[1:] {
		if err := e.fs.Xattrs(e.args[0]).Remove(e.ctx, name); err != nil {
			return e.failXattr(err)
		}
	}
	return nil
}
