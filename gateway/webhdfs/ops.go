package webhdfs

import (
	"context"
	"net/http"
	"strings"

	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// request is one request of a known user for a known operation.
type request struct {
	*Server
	w      http.ResponseWriter
	r      *http.Request
	ctx    context.Context
	op     string // in capitals
	path   string // clean
	user   *users.User
	who    asker
	fs     hadoop.FS // of user
	params params
}

// json answers 200 with a value.
func (q *request) json(v any) error {
	answer(q.w, http.StatusOK, v)
	return nil
}

// yes answers the boolean that many operations have as their result.
func (q *request) yes(b bool) error {
	return q.json(map[string]bool{"boolean": b})
}

// done answers 200 without a body, if err is nil.
func (q *request) done(err error) error {
	if err == nil {
		q.w.Header().Set("Content-Type", "application/octet-stream")
		q.w.Header().Set("Content-Length", "0")
		q.w.WriteHeader(http.StatusOK)
	}
	return err
}

type operation func(*request) error

// Requests by what they do: lookup reads names and attributes, change changes them, and
// transfer moves the bytes of a file.
type (
	lookup   struct{ *request }
	change   struct{ *request }
	transfer struct{ *request }
)

func looks(f func(lookup) error) operation {
	return func(q *request) error { return f(lookup{q}) }
}

func changes(f func(change) error) operation {
	return func(q *request) error {
		if err := ifThere(q.r); err != nil {
			return err
		}
		return f(change{q})
	}
}

func moves(f func(transfer) error) operation {
	return func(q *request) error { return f(transfer{q}) }
}

// operations are those of Hadoop 3.4's client by method and name, and those about leases (lease.go).
var operations = map[string]map[string]operation{
	http.MethodGet: {
		"OPEN":                          moves(transfer.open),
		"GETFILESTATUS":                 looks(lookup.getFileStatus),
		"GETFILELINKSTATUS":             looks(lookup.getFileLinkStatus),
		"GETLINKTARGET":                 looks(lookup.getLinkTarget),
		"LISTSTATUS":                    looks(lookup.listStatus),
		"LISTSTATUS_BATCH":              looks(lookup.listStatusBatch),
		"GETCONTENTSUMMARY":             looks(lookup.getContentSummary),
		"GETQUOTAUSAGE":                 looks(lookup.getQuotaUsage),
		"GETFILECHECKSUM":               moves(transfer.getFileChecksum),
		"GETHOMEDIRECTORY":              looks(lookup.getHomeDirectory),
		"GETTRASHROOT":                  looks(lookup.getTrashRoot),
		"GETTRASHROOTS":                 looks(lookup.getTrashRoots),
		"GETDELEGATIONTOKEN":            looks(lookup.getDelegationToken),
		"GETFILEBLOCKLOCATIONS":         looks(lookup.getFileBlockLocations),
		"GET_BLOCK_LOCATIONS":           looks(lookup.getBlockLocations),
		"GETXATTRS":                     looks(lookup.getXattrs),
		"LISTXATTRS":                    looks(lookup.listXattrs),
		"CHECKACCESS":                   looks(lookup.checkAccess),
		"GETSERVERDEFAULTS":             looks(lookup.getServerDefaults),
		"GETSTATUS":                     looks(lookup.getStatus),
		"GETSTORAGEPOLICY":              looks(lookup.getStoragePolicy),
		"GETALLSTORAGEPOLICY":           looks(lookup.getAllStoragePolicy),
		"GETACLSTATUS":                  looks(lookup.getACLStatus),
		"GETECPOLICY":                   looks(lookup.getECPolicy),
		"GETECPOLICIES":                 lacking("erasure coding policies"),
		"GETECCODECS":                   lacking("erasure coding policies"),
		"GETSNAPSHOTDIFF":               looks(lookup.getSnapshotDiff),
		"GETSNAPSHOTDIFFLISTING":        looks(lookup.getSnapshotDiffListing),
		"GETSNAPSHOTTABLEDIRECTORYLIST": looks(lookup.getSnapshottableDirectoryList),
		"GETSNAPSHOTLIST":               looks(lookup.getSnapshotList),
		"GETLEASE":                      looks(lookup.getLease),
		"ISFILECLOSED":                  looks(lookup.isFileClosed),
	},
	http.MethodPut: {
		"CREATE":                moves(transfer.create),
		"MKDIRS":                changes(change.mkdirs),
		"CREATESYMLINK":         changes(change.createSymlink),
		"RENAME":                changes(change.rename),
		"SETREPLICATION":        changes(change.setReplication),
		"SETOWNER":              changes(change.setOwner),
		"SETPERMISSION":         changes(change.setPermission),
		"SETTIMES":              changes(change.setTimes),
		"SETXATTR":              changes(change.setXattr),
		"REMOVEXATTR":           changes(change.removeXattr),
		"RENEWDELEGATIONTOKEN":  changes(change.renewDelegationToken),
		"CANCELDELEGATIONTOKEN": changes(change.cancelDelegationToken),
		"MODIFYACLENTRIES":      acl(posixacl.Modify, true),
		"REMOVEACLENTRIES":      acl(posixacl.Remove, true),
		"REMOVEDEFAULTACL":      acl(posixacl.RemoveDefault, false),
		"REMOVEACL":             acl(posixacl.RemoveAll, false),
		"SETACL":                acl(posixacl.Replace, true),
		"ALLOWSNAPSHOT":         changes(change.allowSnapshot),
		"DISALLOWSNAPSHOT":      changes(change.disallowSnapshot),
		"CREATESNAPSHOT":        changes(change.createSnapshot),
		"RENAMESNAPSHOT":        changes(change.renameSnapshot),
		"SETSTORAGEPOLICY":      lacking("storage policies"),
		"SATISFYSTORAGEPOLICY":  lacking("storage policies"),
		"ENABLEECPOLICY":        lacking("erasure coding policies"),
		"DISABLEECPOLICY":       lacking("erasure coding policies"),
		"SETECPOLICY":           lacking("erasure coding policies"),
		"SETQUOTA":              changes(change.setQuota),
		"SETQUOTABYSTORAGETYPE": lacking("quotas by storage type"),
		"RECOVERLEASE":          changes(change.recoverLease),
		"RENEWLEASE":            changes(change.renewLease),
	},
	http.MethodPost: {
		"APPEND":             moves(transfer.append),
		"CONCAT":             changes(change.concat),
		"TRUNCATE":           changes(change.truncate),
		"RECOVERLEASE":       changes(change.recoverLease),
		"UNSETSTORAGEPOLICY": lacking("storage policies"),
		"UNSETECPOLICY":      lacking("erasure coding policies"),
	},
	http.MethodDelete: {
		"DELETE":         changes(change.delete),
		"DELETESNAPSHOT": changes(change.deleteSnapshot),
	},
}

// lacking is an operation of something that there is not.
func lacking(what string) operation {
	return func(q *request) error {
		return hadoop.Refuse(hadoop.Unsupported, "%s: leasefs has no %s; see docs/HADOOP.md", q.op, what)
	}
}

// find returns the operation that a request asks for.
func find(method string, p params) (operation, string, error) {
	byName, ok := operations[method]
	if !ok {
		return nil, "", hadoop.Refuse(hadoop.Unsupported, "the method %.20s has no operation; WebHDFS has GET, PUT, POST and DELETE", method)
	}
	name := strings.ToUpper(p.text("op"))
	if name == "" {
		return nil, "", hadoop.Refuse(hadoop.Unsupported, "op=NULL is not supported; say which operation is meant")
	}
	f, ok := byName[name]
	if !ok {
		for other, names := range operations {
			if names[name] != nil {
				return nil, "", &badParam{"op", name + " goes with the method " + other + ", not " + method}
			}
		}
		return nil, "", &badParam{"op", "there is no operation " + strings.ToValidUTF8(name[:min(len(name), 40)], "?")}
	}
	return f, name, nil
}
