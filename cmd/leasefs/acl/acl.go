// Package acl is the command of that name: ACLs as getfacl and setfacl write and take them.
package acl

import (
	"context"
	"fmt"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// Change is what is to be done with the ACLs of files and directories.
type Change struct {
	Action  posixacl.Action
	Entries client.ACL // as ParseEntries returns them
}

// Parse reads the entries of a change; byDefault: they are for the default ACL, whether they
// say so or not.
func Parse(action posixacl.Action, text string, byDefault bool) (Change, error) {
	entries, err := posixacl.ParseEntries(text, action == posixacl.Remove)
	if byDefault {
		entries = entries.AsDefault()
	}
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%q has no entry; one is like user:alice:r-x", text)
	}
	return Change{action, entries}, err
}

// of is the change of one file or directory: one file of many has no default ACL, so entries
// for one do not count. False: there is nothing to change.
func (c Change) of(i *client.FileInfo, many bool) (client.ACLChange, bool) {
	change := client.ACLChange{Action: c.Action}
	for _, e := range c.Entries {
		if !many || !e.Default || i.IsDir() {
			change.Entries = append(change.Entries, e)
		}
	}
	change.Entries = change.Entries.Resolve(i.IsDir() || i.Mode()&0o111 != 0)
	return change, len(change.Entries) > 0 || len(c.Entries) == 0
}

// Do changes what is at a path, and with recursive all that is below it but symbolic links.
func (c Change) Do(ctx context.Context, fs *client.FS, path string, recursive bool) error {
	if recursive {
		return lowlevel.Of(fs).ChangeACLAll(ctx, path, func(i *client.FileInfo) (client.ACLChange, bool) { return c.of(i, true) })
	}
	i, err := fs.Stat(ctx, path)
	if err != nil {
		return err
	}
	change, _ := c.of(i, false)
	return fs.Xattrs(path).ChangeACL(ctx, change)
}

// Shown is an ACL for people and programs.
type Shown struct {
	Path    string   `json:"path"`
	User    string   `json:"user"`
	Group   string   `json:"group"`
	Entries []string `json:"entries"` // as user:alice:r-x
	text    string
}

// String is what getfacl prints.
func (s Shown) String() string {
	return fmt.Sprintf("# file: %s\n# owner: %s\n# group: %s\n%s\n", s.Path, s.User, s.Group, s.text)
}

// Get shows the ACL of what is at a path, and with recursive of all that is below it but
// symbolic links. What is gone meanwhile is left out.
func Get(ctx context.Context, fs *client.FS, path string, recursive bool, show func(Shown) error) error {
	one := func(i *client.FileInfo) error {
		list, err := lowlevel.Of(fs).XattrsInode(i.Inode).ACL(ctx)
		if err != nil {
			return err
		}
		return show(Shown{Path: i.Path, User: i.User, Group: i.Group, Entries: list.Strings(), text: list.Long()})
	}
	i, err := fs.Stat(ctx, path)
	if err != nil {
		return err
	}
	if err := one(i); err != nil || !recursive || !i.IsDir() {
		return err
	}
	for below, err := range fs.Find(ctx, path, client.FindOptions{}) {
		if err != nil {
			return err
		}
		if below.Inode == i.Inode || below.LinkTarget != "" {
			continue
		}
		if err := one(below); err != nil && !lowlevel.IsGone(err) {
			return err
		}
	}
	return nil
}
