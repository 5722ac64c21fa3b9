package hdfs

import (
	"context"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
	"github.com/leasefs/leasefs/gateway/hdfs/ipc"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
	"github.com/leasefs/leasefs/internal/lowlevel"
	"github.com/leasefs/leasefs/internal/posixacl"
)

// request is one call of a known user.
type request struct {
	*Server
	call *ipc.Call
	user *users.User
	fs   hadoop.FS // of user
}

// Calls by what they are about: a lookup reads names and attributes, a change
// changes them, opened is about files that are open and about blocks.
type (
	lookup struct{ *request }
	change struct{ *request }
	opened struct{ *request }
)

// method answers a call.
type method func(context.Context, *request) (proto.Message, error)

// message is a pointer to a message of type T.
type message[T any] interface {
	*T
	proto.Message
}

// on decodes what a method is given.
func on[W, T any, M message[T]](wrap func(*request) W, f func(W, context.Context, M) (proto.Message, error)) method {
	return func(ctx context.Context, q *request) (proto.Message, error) {
		m := M(new(T))
		if err := q.call.Decode(m); err != nil {
			return nil, hadoop.Refuse(hadoop.RPCServer, "%s: what it is given cannot be decoded: %s", q.call.Method, err)
		}
		return f(wrap(q), ctx, m)
	}
}

func looks[T any, M message[T]](f func(lookup, context.Context, M) (proto.Message, error)) method {
	return on(func(q *request) lookup { return lookup{q} }, f)
}

func changes[T any, M message[T]](f func(change, context.Context, M) (proto.Message, error)) method {
	return on(func(q *request) change { return change{q} }, f)
}

func opens[T any, M message[T]](f func(opened, context.Context, M) (proto.Message, error)) method {
	return on(func(q *request) opened { return opened{q} }, f)
}

// always is a method with one answer.
func always(m proto.Message) method {
	return func(context.Context, *request) (proto.Message, error) { return m, nil }
}

// lacking is a method of something that there is not.
func lacking(what string) method {
	return func(_ context.Context, q *request) (proto.Message, error) {
		return nil, hadoop.Refuse(hadoop.Unsupported, "%s: leasefs has no %s; see docs/HADOOP.md", q.call.Method, what)
	}
}

// operators is a method for those who run an HDFS.
func operators(context.Context, *request) (proto.Message, error) {
	return nil, hadoop.Refuse(hadoop.Unsupported, "this is a gateway to leasefs, which is run by other commands; see docs/OPERATIONS.md")
}

// Java names of protocols.
const (
	clientProtocol   = "org.apache.hadoop.hdfs.protocol.ClientProtocol"
	namenodeProtocol = "org.apache.hadoop.hdfs.server.protocol.NamenodeProtocol"
	haProtocol       = "org.apache.hadoop.ha.HAServiceProtocol"
	groupsProtocol   = "org.apache.hadoop.tools.GetUserMappingsProtocol"
)

var (
	empty   = new(pb.EmptyProto)
	active  = pb.HAServiceStateProto_ACTIVE.Enum()
	standby = pb.HAServiceStateProto_STANDBY.Enum()
)

// protocols are the methods of each, by name.
var protocols = map[string]map[string]method{
	clientProtocol: {
		"getFileInfo":               looks(lookup.getFileInfo),
		"getFileLinkInfo":           looks(lookup.getFileLinkInfo),
		"getLinkTarget":             looks(lookup.getLinkTarget),
		"getListing":                looks(lookup.getListing),
		"getContentSummary":         looks(lookup.getContentSummary),
		"getQuotaUsage":             looks(lookup.getQuotaUsage),
		"getPreferredBlockSize":     looks(lookup.getPreferredBlockSize),
		"getFsStats":                looks(lookup.getFsStats),
		"getDatanodeReport":         looks(lookup.getDatanodeReport),
		"getServerDefaults":         always(serverDefaults),
		"getStoragePolicies":        always(&pb.GetStoragePoliciesResponseProto{Policies: []*pb.BlockStoragePolicyProto{hot}}),
		"getStoragePolicy":          looks(lookup.getStoragePolicy),
		"getFsReplicatedBlockStats": always(noneMissing),
		"getFsECBlockGroupStats":    always(noGroups),
		"listCorruptFileBlocks":     always(&pb.ListCorruptFileBlocksResponseProto{Corrupt: &pb.CorruptFileBlocksProto{Cookie: proto.String("")}}),
		"getAclStatus":              looks(lookup.getACLStatus),
		"getXAttrs":                 looks(lookup.getXattrs),
		"listXAttrs":                looks(lookup.listXattrs),
		"checkAccess":               looks(lookup.checkAccess),
		"getHAServiceState":         always(&pb.HAServiceStateResponseProto{State: active}),
		"getEnclosingRoot":          always(&pb.TextResponseProto{Text: proto.String("/")}),
		"msync":                     always(empty), // each answer is of the latest state

		"mkdirs":           changes(change.mkdirs),
		"createSymlink":    changes(change.createSymlink),
		"rename":           changes(change.rename),
		"rename2":          changes(change.rename2),
		"delete":           changes(change.delete),
		"concat":           changes(change.concat),
		"setReplication":   changes(change.setReplication),
		"setQuota":         changes(change.setQuota),
		"setOwner":         changes(change.setOwner),
		"setPermission":    changes(change.setPermission),
		"setTimes":         changes(change.setTimes),
		"setXAttr":         changes(change.setXattr),
		"removeXAttr":      changes(change.removeXattr),
		"setSafeMode":      changes(change.setSafeMode),
		"modifyAclEntries": acl(posixacl.Modify),
		"removeAclEntries": acl(posixacl.Remove),
		"removeDefaultAcl": acl(posixacl.RemoveDefault),
		"removeAcl":        acl(posixacl.RemoveAll),
		"setAcl":           acl(posixacl.Replace),

		"create":                 opens(opened.create),
		"append":                 opens(opened.append),
		"addBlock":               opens(opened.addBlock),
		"abandonBlock":           opens(opened.abandonBlock),
		"complete":               opens(opened.complete),
		"fsync":                  opens(opened.fsync),
		"renewLease":             opens(opened.renewLease),
		"recoverLease":           opens(opened.recoverLease),
		"isFileClosed":           opens(opened.isFileClosed),
		"truncate":               opens(opened.truncate),
		"updateBlockForPipeline": opens(opened.updateBlockForPipeline),
		"updatePipeline":         opens(opened.updatePipeline),
		"getBlockLocations":      opens(opened.getBlockLocations),
		"getLocatedFileInfo":     opens(opened.getLocatedFileInfo),
		"reportBadBlocks":        opens(opened.reportBadBlocks),

		"getDelegationToken":    looks(lookup.getDelegationToken),
		"renewDelegationToken":  changes(change.renewDelegationToken),
		"cancelDelegationToken": changes(change.cancelDelegationToken),

		"allowSnapshot":                allowSnapshots(true),
		"disallowSnapshot":             allowSnapshots(false),
		"createSnapshot":               changes(change.createSnapshot),
		"renameSnapshot":               changes(change.renameSnapshot),
		"deleteSnapshot":               changes(change.deleteSnapshot),
		"getSnapshottableDirListing":   looks(lookup.getSnapshottableDirListing),
		"getSnapshotListing":           looks(lookup.getSnapshotListing),
		"getSnapshotDiffReport":        looks(lookup.getSnapshotDiffReport),
		"getSnapshotDiffReportListing": looks(lookup.getSnapshotDiffReportListing),

		// Answers as those of an HDFS in which there is none.
		"getDataEncryptionKey":           always(empty),
		"getEZForPath":                   always(empty),
		"getErasureCodingPolicy":         always(empty),
		"getErasureCodingPolicies":       always(empty),
		"getErasureCodingCodecs":         always(empty),
		"getSlowDatanodeReport":          always(empty),
		"getAdditionalDatanode":          lacking("second place for a block: the store keeps its copies"),
		"getBatchedListing":              lacking("listing of several directories in one call"),
		"setStoragePolicy":               lacking("storage policies"),
		"unsetStoragePolicy":             lacking("storage policies"),
		"satisfyStoragePolicy":           lacking("storage policies"),
		"createEncryptionZone":           lacking("encryption zones"),
		"listEncryptionZones":            lacking("encryption zones"),
		"reencryptEncryptionZone":        lacking("encryption zones"),
		"listReencryptionStatus":         lacking("encryption zones"),
		"setErasureCodingPolicy":         lacking("erasure coding"),
		"unsetErasureCodingPolicy":       lacking("erasure coding"),
		"addErasureCodingPolicies":       lacking("erasure coding"),
		"removeErasureCodingPolicy":      lacking("erasure coding"),
		"enableErasureCodingPolicy":      lacking("erasure coding"),
		"disableErasureCodingPolicy":     lacking("erasure coding"),
		"getECTopologyResultForPolicies": lacking("erasure coding"),
		"addCacheDirective":              lacking("cache directives"),
		"modifyCacheDirective":           lacking("cache directives"),
		"removeCacheDirective":           lacking("cache directives"),
		"listCacheDirectives":            lacking("cache directives"),
		"addCachePool":                   lacking("cache pools"),
		"modifyCachePool":                lacking("cache pools"),
		"removeCachePool":                lacking("cache pools"),
		"listCachePools":                 lacking("cache pools"),
		"getCurrentEditLogTxid":          lacking("edit log for clients"),
		"getEditsFromTxid":               lacking("edit log for clients"),
		"getDatanodeStorageReport":       operators,
		"listOpenFiles":                  operators,
		"saveNamespace":                  operators,
		"rollEdits":                      operators,
		"restoreFailedStorage":           operators,
		"refreshNodes":                   operators,
		"finalizeUpgrade":                operators,
		"upgradeStatus":                  operators,
		"rollingUpgrade":                 operators,
		"metaSave":                       operators,
		"setBalancerBandwidth":           operators,
	},
	namenodeProtocol: {
		"versionRequest": looks(lookup.versionRequest),
	},
	groupsProtocol: {
		"getGroupsForUser": looks(lookup.getGroupsForUser),
	},
	// What an operator of HDFS tells its NameNode to read or do again.
	"org.apache.hadoop.security.RefreshUserMappingsProtocol": {
		"refreshUserToGroupsMappings":         operators,
		"refreshSuperUserGroupsConfiguration": operators,
	},
	"org.apache.hadoop.security.authorize.RefreshAuthorizationPolicyProtocol": {"refreshServiceAcl": operators},
	"org.apache.hadoop.ipc.RefreshCallQueueProtocol":                          {"refreshCallQueue": operators},
	"org.apache.hadoop.ipc.GenericRefreshProtocol":                            {"refresh": operators},
	"org.apache.hadoop.hdfs.protocol.ReconfigurationProtocol": {
		"getReconfigurationStatus":     operators,
		"startReconfiguration":         operators,
		"listReconfigurableProperties": operators,
	},
	haProtocol: {
		"monitorHealth":       monitorHealth,
		"getServiceStatus":    serviceStatus,
		"transitionToActive":  operators,
		"transitionToStandby": operators,
	},
}

// once are the calls of clientProtocol that must not happen twice: those that HDFS calls
// AtMostOnce.
var once = map[string]bool{
	"create": true, "append": true, "rename": true, "rename2": true, "delete": true, "concat": true,
	"createSymlink": true, "updatePipeline": true, "setXAttr": true, "removeXAttr": true,
	"createSnapshot": true, "renameSnapshot": true, "deleteSnapshot": true,
}

// reads tells by its name whether a call changes nothing.
func reads(method string) bool {
	for _, prefix := range []string{"get", "list", "check", "is"} {
		if strings.HasPrefix(method, prefix) {
			return true
		}
	}
	return method == "msync"
}

// find returns what answers a call.
func find(c *ipc.Call) (method, error) {
	methods, ok := protocols[c.Protocol]
	if !ok {
		return nil, hadoop.Refuse(hadoop.NoSuchProtocol, "Unknown protocol: %.200s", c.Protocol)
	}
	m, ok := methods[c.Method]
	if !ok {
		return nil, hadoop.Refuse(hadoop.NoSuchMethod, "Unknown method %.100s called on %s protocol.", c.Method, c.Protocol)
	}
	return m, nil
}

// handle answers a call.
func (s *Server) handle(ctx context.Context, c *ipc.Call) (m proto.Message, err error) {
	defer func(began time.Time) {
		class := ""
		if err != nil {
			class = hadoop.ClassOf(err)
		}
		s.cfg.Observe(class, time.Since(began))
	}(time.Now())
	m, err = s.answer(ctx, c)
	switch {
	case err == nil:
	case fserror.ReasonOf(err) == fserror.ReasonReplyLost && isToldOnce(c):
		err = hadoop.Named(hadoop.IOException, err)
	case s.cfg.Pair && noNamenode(err):
		err = hadoop.Named(hadoop.Standby, err)
	}
	return m, err
}

// isToldOnce tells whether the client of a call must not be asked to make it once more where nobody
// knows whether it has happened: the second one would be answered otherwise.
func isToldOnce(c *ipc.Call) bool {
	switch c.Method {
	case "create", "append", "updatePipeline":
		return false
	}
	return c.Protocol == clientProtocol && once[c.Method]
}

// noNamenode tells whether another gateway may reach an active namenode where this one does not. The
// block store is the same for both.
func noNamenode(err error) bool {
	k := client.KindOf(err)
	return k == client.ErrNotActive || k == client.ErrUnavailable && fserror.ReasonOf(err) != fserror.ReasonBlockStore
}

func (s *Server) answer(ctx context.Context, c *ipc.Call) (proto.Message, error) {
	m, err := find(c)
	if err != nil {
		return nil, err
	}
	q := &request{Server: s, call: c}
	if c.Protocol == haProtocol { // which is asked whether there can be a session
		return m(ctx, q)
	}
	if q.user, err = s.users.Get(ctx, users.Key{User: c.User}); err != nil {
		return nil, err
	}
	defer s.users.Release(q.user)
	q.fs = hadoop.FS{FS: q.user.FS, User: c.User, Log: s.log}
	return m(ctx, q)
}

// byInode is before the number of an inode in the path of a file that a client has a
// handle of.
const byInode = "/.reserved/.inodes/"

// path is a path as the library has it. HDFS's path by inode becomes that where the
// inode is now.
func (q *request) path(ctx context.Context, src string) (string, error) {
	if number, ok := strings.CutPrefix(src, byInode); ok {
		inode, err := strconv.ParseUint(number, 10, 63)
		if err != nil || inode == 0 {
			return "", hadoop.Refuse(hadoop.InvalidPath, "Invalid inode path: %.300s", src)
		}
		i, err := q.fs.Locate(ctx, lowlevel.Inode(inode))
		if err != nil {
			return "", err
		}
		return i.Path, nil
	}
	return fspath.Clean(src)
}

// done is an answer that says nothing.
func done(err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return empty, nil
}

// yes is an answer of a boolean.
func yes(b bool, err error) (proto.Message, error) {
	if err != nil {
		return nil, err
	}
	return &pb.BoolResponseProto{Result: &b}, nil
}
