package webhdfs

import (
	"io/fs"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// aclStatus is Hadoop's description of ACLs. Entries are those that no permission says: of
// the access ACL not the owner, the mask and others.
type aclStatus struct {
	Entries    []string `json:"entries"`
	Group      string   `json:"group"`
	Owner      string   `json:"owner"`
	Permission string   `json:"permission"`
	StickyBit  bool     `json:"stickyBit"`
}

func (q lookup) getACLStatus() error {
	i, err := q.fs.Stat(q.ctx, q.path)
	if err != nil {
		return err
	}
	st := aclStatus{Entries: []string{}, Group: i.Group, Owner: i.User, Permission: octal(i.Mode().Perm()), StickyBit: octal(i.Mode()) != octal(i.Mode().Perm())}
	entries, err := q.fs.ACL(q.ctx, i)
	if err != nil {
		return err
	}
	st.Entries = append(st.Entries, entries.Strings()...)
	return q.json(map[string]aclStatus{"AclStatus": st})
}

// acl is an operation that changes ACLs; takes: it has entries.
func acl(action posixacl.Action, takes bool) operation {
	return changes(func(q change) error {
		c := client.ACLChange{Action: action}
		if takes {
			spec, err := q.params.needed("aclspec")
			if err != nil {
				return err
			}
			if c.Entries, err = posixacl.ParseEntries(spec, action == posixacl.Remove); err != nil {
				return &badParam{"aclspec", hadoop.Message(err)}
			}
			for _, e := range c.Entries {
				if e.Perm > 7 {
					return &badParam{"aclspec", "an entry has the permission X, which Hadoop does not know"}
				}
			}
		}
		return q.done(q.fs.ChangeACL(q.ctx, q.path, c))
	})
}

// unmasked is the mode of something new as Hadoop's client has it before its umask, and what
// the umask takes from that: where a default ACL is inherited, no umask counts.
func (p params) unmasked(without fs.FileMode) (mode, less fs.FileMode, err error) {
	masked, err := p.mode("permission", without)
	if err != nil {
		return 0, 0, err
	}
	mode, err = p.mode("unmaskedpermission", masked)
	return mode, mode &^ masked, err
}
