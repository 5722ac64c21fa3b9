package main

import (
	"github.com/urfave/cli/v2"

	"github.com/leasefs/leasefs/cmd/leasefs/acl"
	"github.com/leasefs/leasefs/cmd/leasefs/argv"
	"github.com/leasefs/leasefs/internal/posixacl"
)

func aclCommand(p *program) *cli.Command {
	recursive := &cli.BoolFlag{Name: "recursive", Aliases: []string{"R"}, Usage: "all that is below, too, but symbolic links"}
	byDefault := &cli.BoolFlag{Name: "default", Aliases: []string{"d"}, Usage: "of the default ACL, which is for what is made in the directory"}
	change := func(name, usage, example, text string, action posixacl.Action) *cli.Command {
		return &cli.Command{
			Name: name, Usage: usage, Description: text, Flags: []cli.Flag{recursive, byDefault},
			UsageText: "leasefs acl " + name + " [-R] [-d] ENTRIES PATH...\n\nExample:\n  leasefs acl " + name + " " + example,
			Action: reading(p, operands{min: 2, max: -1, names: "ENTRIES and at least one PATH", local: true}, func(e *invocation) (acl.Change, error) {
				c, err := acl.Parse(action, e.args[0], e.flags.Bool("default"))
				if err != nil {
					return c, argv.Usagef(e.op, "%v", err)
				}
				return c, e.pathsAfterFirst()
			}, func(e *invocation, c acl.Change) error {
				e.args = e.args[1:]
				return changeACLs(e, c)
			}),
		}
	}
	return &cli.Command{
		Name: "acl", Usage: "show and change access control lists",
		UsageText: "leasefs acl COMMAND\n\nExample:\n  leasefs acl modify user:alice:rwx,group:staff:r-x /data",
		Description: "Files and directories have POSIX ACLs, see acl(5): rights for users and groups by name, limited by a\n" +
			"mask, which is what chmod and ls show as the group's rights. What is made in a directory with a\ndefault ACL inherits it, and no umask counts.\n" +
			"ENTRIES are as for setfacl, with commas: user:NAME:rwx, group:NAME:r-x, user::, group::, other::,\nmask::, default:... before each for a default ACL; first letters are enough, and X is execute for\n" +
			"directories and for files that somebody may execute. 32 entries each can be. Links are followed.",
		Subcommands: []*cli.Command{
			{
				Name: "get", Usage: "show ACLs", Flags: []cli.Flag{recursive},
				UsageText:   "leasefs acl get [-R] PATH...\n\nExample:\n  leasefs acl get /data",
				Description: "Prints ACLs as getfacl does.",
				Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
					return e.each(func(path string) error {
						return e.fail(acl.Get(e.ctx, e.fs, path, e.flags.Bool("recursive"), func(s acl.Shown) error {
							if e.JSON {
								return e.PrintJSON(s)
							}
							s.Path, s.User, s.Group = e.Name(s.Path), e.Name(s.User), e.Name(s.Group)
							e.Printf("%s", s)
							return nil
						}), path)
					})
				}),
			},
			change("set", "set whole ACLs", "user::rwx,group::r-x,other::-,user:alice:rwx /data", "Makes ENTRIES the whole access ACL, or default ACL, or both. The one that they are not about stays.\nA mask that they do not name becomes what is needed.", posixacl.Replace),
			change("modify", "add or change entries", "user:alice:rwx /data", "Adds ENTRIES, or changes those that are there. A mask that they do not name becomes what is needed.", posixacl.Modify),
			change("remove", "remove entries", "user:alice /data", "Removes ENTRIES, whose rights can be left out. One that is not there is no error.", posixacl.Remove),
			{
				Name: "clear", Usage: "remove ACLs", Flags: []cli.Flag{recursive, byDefault},
				UsageText:   "leasefs acl clear [-R] [-d] PATH...\n\nExample:\n  leasefs acl clear -R /data",
				Description: "Removes all that a mode cannot say; with -d only the default ACL. The owning group keeps the rights\nthat it has under the mask.",
				Action: p.connected(operands{min: 1, max: -1, names: "one path or more"}, func(e *invocation) error {
					c := acl.Change{Action: posixacl.RemoveAll}
					if e.flags.Bool("default") {
						c.Action = posixacl.RemoveDefault
					}
					return changeACLs(e, c)
				}),
			},
		},
	}
}

func changeACLs(e *invocation, c acl.Change) error {
	return e.each(func(path string) error { return e.fail(c.Do(e.ctx, e.fs, path, e.flags.Bool("recursive")), path) })
}
