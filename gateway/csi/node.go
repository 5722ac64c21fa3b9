package csi

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

const (
	// lookEvery is how often mounts are looked at.
	lookEvery = 5 * time.Second
	// looksAtOnce is how many volumes are looked at, or made good, at once.
	looksAtOnce = 16
	// restoreTime is how long one may take to be made good before it is tried again.
	restoreTime = 2 * time.Minute

	// Keys of the secrets with which a volume is staged.
	userSecret  = "user"
	tokenSecret = "token"
)

// node mounts volumes on this machine.
type node struct {
	spec.UnimplementedNodeServer
	mounts
	id     string
	log    *slog.Logger
	busy   busy
	claims sync.Mutex // of places
}

func newNode(cfg Config) (*node, error) {
	dir, err := place("", cfg.State)
	if err != nil {
		return nil, err
	}
	l, err := openLedger(dir)
	if err != nil {
		return nil, err
	}
	return &node{mounts: mounts{command: cfg.Command, ledger: l}, id: cfg.NodeID, log: cfg.Logger}, nil
}

// watch makes good, at once and every few seconds, what does not work of what is promised.
func (n *node) watch(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	said := ""
	for {
		list, err := n.ledger.all()
		if err != nil && err.Error() != said {
			said = err.Error()
			n.log.Error("what is mounted is not known whole", "err", err)
		}
		var g errgroup.Group
		g.SetLimit(looksAtOnce)
		for _, v := range list {
			g.Go(func() error { n.look(ctx, v); return nil })
		}
		_ = g.Wait() // nothing fails
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// look makes one volume good, unless a call for it is under way. A mount whose namenode does
// not answer is waited for before the volume is taken, so that calls need not wait.
func (n *node) look(ctx context.Context, v *staged) {
	ctx, cancel := context.WithTimeout(ctx, restoreTime)
	defer cancel()
	if !n.broken(ctx, append(slices.Collect(maps.Keys(v.Targets)), v.Staging)...) {
		return
	}
	id := v.ID
	leave, err := n.busy.take(id)
	if err != nil {
		return
	}
	defer leave()
	if v, err = n.ledger.get(id); err != nil || v == nil {
		return // unstaged since
	}
	switch again, err := n.restore(ctx, v); {
	case err != nil && ctx.Err() == nil:
		n.log.Error("a mount does not work, and is tried again", "volume", id, "err", err)
	case again:
		n.log.Warn("a mount had ended, and was made again: files that were open in it get ENOTCONN", "volume", id)
	}
}

// restore makes true what the ledger says of a volume. again tells whether it had to be mounted.
func (n *node) restore(ctx context.Context, v *staged) (again bool, err error) {
	if again, err = n.stage(ctx, v); err != nil {
		return again, err
	}
	for target := range v.Targets {
		if _, gone := place(v.ID, target); errors.Is(gone, fserror.NotFound) { // with the pod
			delete(v.Targets, target)
			err = errors.Join(err, n.ledger.put(v))
			continue
		}
		err = errors.Join(err, n.bind(ctx, v, target))
	}
	return again, err
}

// stage mounts a volume where it is staged, unless it is mounted there.
func (n *node) stage(ctx context.Context, v *staged) (again bool, err error) {
	if again, err = n.missing(ctx, v.Staging, 0); err != nil || !again {
		return false, err
	}
	return true, n.start(ctx, v)
}

func (n *node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{NodeId: n.id}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	resp := new(spec.NodeGetCapabilitiesResponse)
	for _, t := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		resp.Capabilities = append(resp.Capabilities, &spec.NodeServiceCapability{Type: &spec.NodeServiceCapability_Rpc{
			Rpc: &spec.NodeServiceCapability_RPC{Type: t},
		}})
	}
	return resp, nil
}

// NodeStageVolume mounts a volume, by a process of its own.
func (n *node) NodeStageVolume(ctx context.Context, req *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	id := req.GetVolumeId()
	v, leave, err := n.begin(id)
	if err != nil {
		return nil, err
	}
	defer leave()
	next, err := stagedBy(req)
	if err != nil {
		return nil, err
	}
	if v != nil {
		next.Targets = v.Targets
		if !reflect.DeepEqual(v, next) {
			return nil, fserror.New(fserror.Exists, op, id, "it is staged at %s, in another way: unstage it first", v.Staging)
		}
	}
	if next.Token { // a later one replaces it: the mount reads the file again
		if err := n.ledger.putToken(id, req.GetSecrets()[tokenSecret]); err != nil {
			return nil, err
		}
	}
	if v == nil {
		err = n.claim(ctx, next, next.Staging)
	}
	if err == nil {
		_, err = n.stage(ctx, next)
	}
	if err != nil {
		if v == nil {
			err = errors.Join(err, n.ledger.remove(id))
		}
		return nil, err
	}
	return new(spec.NodeStageVolumeResponse), nil
}

// begin begins a call about a volume. v is what is promised of it; nil if it is not staged.
func (n *node) begin(id string) (v *staged, leave func(), err error) {
	if id == "" || len(id) > maxID {
		return nil, nil, invalid("", "the id of the volume has %d bytes: it needs one, and at most %d are allowed", len(id), maxID)
	}
	if leave, err = n.busy.take(id); err != nil {
		return nil, nil, err
	}
	if v, err = n.ledger.get(id); err != nil {
		leave()
		return nil, nil, err
	}
	return v, leave, nil
}

// foreign is an error if another volume is staged or published at a path.
func (n *node) foreign(id, path string) error {
	all, _ := n.ledger.all() // watch tells of what cannot be read
	for _, v := range all {
		if _, published := v.Targets[path]; v.ID != id && (published || v.Staging == path) {
			return invalid(id, "volume %s is at %s: name that one, or another path", v.ID, path)
		}
	}
	return nil
}

// claim promises what v says, of which a path is new: neither another volume may be there nor a
// mount that nobody has promised, since what works there is taken for the volume's from now on.
func (n *node) claim(ctx context.Context, v *staged, path string) error {
	if err := n.foreign(v.ID, path); err != nil {
		return err
	}
	if none, err := n.missing(ctx, path, 0); err != nil {
		return err
	} else if !none {
		return fserror.New(fserror.NotEmpty, op, path, "something is mounted there that is not of volume %s: unmount it", v.ID)
	}
	n.claims.Lock()
	defer n.claims.Unlock()
	if err := n.foreign(v.ID, path); err != nil { // since
		return err
	}
	return n.ledger.put(v)
}

// stagedBy reads a request.
func stagedBy(req *spec.NodeStageVolumeRequest) (v *staged, err error) {
	v = &staged{ID: req.GetVolumeId(), Targets: map[string]bool{}}
	if v.Staging, err = place(v.ID, req.GetStagingTargetPath()); err != nil {
		return nil, err
	}
	if v.Mount, err = mountOf(v.ID, req.GetVolumeCapability()); err != nil {
		return nil, err
	}
	if v.Path, err = fspath.Clean(req.GetVolumeContext()[pathKey]); err != nil {
		return nil, invalid(v.ID, "the volume's context has no %s of a directory: %v", pathKey, err)
	}
	for key, value := range req.GetSecrets() {
		switch key {
		case userSecret:
			v.User = value
		case tokenSecret:
			v.Token = value != ""
		default:
			return nil, invalid(v.ID, "there is no secret %.80q; there are %s and %s", key, userSecret, tokenSecret)
		}
	}
	return v, nil
}

// NodeUnstageVolume takes a volume's mount away, and waits until its process has ended.
func (n *node) NodeUnstageVolume(ctx context.Context, req *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	v, leave, err := n.begin(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer leave()
	staging, err := place(req.GetVolumeId(), req.GetStagingTargetPath())
	switch {
	case errors.Is(err, fserror.NotFound) && v == nil:
		return new(spec.NodeUnstageVolumeResponse), nil
	case err != nil:
		return nil, err
	case v != nil && v.Staging != staging:
		return nil, fserror.New(fserror.NotFound, op, v.ID, "it is staged at %s", v.Staging)
	case v == nil:
		if err := n.foreign(req.GetVolumeId(), staging); err != nil {
			return nil, err
		}
	case v != nil && len(v.Targets) > 0:
		return nil, fserror.New(fserror.NotEmpty, op, v.ID, "it is published at %d places: unpublish it first", len(v.Targets))
	}
	if err := n.end(ctx, staging); err != nil {
		return nil, err
	}
	return new(spec.NodeUnstageVolumeResponse), n.ledger.remove(req.GetVolumeId())
}

// NodePublishVolume binds a staged volume to a target.
func (n *node) NodePublishVolume(ctx context.Context, req *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	id := req.GetVolumeId()
	v, leave, err := n.begin(id)
	if err != nil {
		return nil, err
	}
	defer leave()
	target, err := place(id, req.GetTargetPath())
	if err != nil {
		return nil, err
	}
	want, err := mountOf(id, req.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	staging, err := place(id, req.GetStagingTargetPath())
	if v == nil || err != nil || v.Staging != staging {
		return nil, fserror.New(fserror.Closed, op, id, "it is not staged at %.80q", req.GetStagingTargetPath())
	}
	readOnly := req.GetReadonly() || want.ReadOnly
	was, published := v.Targets[target]
	switch {
	case published && was != readOnly:
		return nil, fserror.New(fserror.Exists, op, target, "it is published there read-only or not, the other way: unpublish it first")
	case !published && want.Alone && len(v.Targets) > 0:
		return nil, fserror.New(fserror.Closed, op, id, "its access mode allows one target, and it is published at another: unpublish it there")
	}
	v.Targets[target] = readOnly
	if !published {
		if err := n.claim(ctx, v, target); err != nil {
			return nil, err
		}
	}
	if _, err = n.stage(ctx, v); err == nil {
		err = n.bind(ctx, v, target)
	}
	if err != nil {
		if !published {
			delete(v.Targets, target)
			err = errors.Join(err, n.ledger.put(v))
		}
		return nil, err
	}
	return new(spec.NodePublishVolumeResponse), nil
}

func (n *node) NodeUnpublishVolume(ctx context.Context, req *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	v, leave, err := n.begin(req.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer leave()
	target, err := place(req.GetVolumeId(), req.GetTargetPath())
	if errors.Is(err, fserror.NotFound) {
		return new(spec.NodeUnpublishVolumeResponse), nil
	}
	if err != nil {
		return nil, err
	}
	if err := n.foreign(req.GetVolumeId(), target); err != nil {
		return nil, err
	}
	if err := n.unmount(ctx, target); err != nil {
		return nil, err
	}
	if v != nil {
		delete(v.Targets, target)
		if err := n.ledger.put(v); err != nil {
			return nil, err
		}
	}
	if err := unix.Rmdir(target); err != nil && !errors.Is(err, fs.ErrNotExist) { // never what is in it, nor a file
		return nil, fserror.Wrap(fserror.NotEmpty, op, target, err)
	}
	return new(spec.NodeUnpublishVolumeResponse), nil
}

// NodeGetVolumeStats tells what df shows: the room of the whole namespace.
func (n *node) NodeGetVolumeStats(ctx context.Context, req *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	id := req.GetVolumeId()
	if id == "" || req.GetVolumePath() == "" {
		return nil, invalid(id, "the request needs a volume and a path")
	}
	v, err := n.ledger.get(id)
	if err != nil {
		return nil, err
	}
	path, err := place(id, req.GetVolumePath())
	if v != nil && err == nil && v.Staging != path {
		if _, published := v.Targets[path]; !published {
			v = nil
		}
	}
	if v == nil || err != nil {
		return nil, fserror.New(fserror.NotFound, op, id, "it is not mounted at %.80q", req.GetVolumePath())
	}
	if has, err := at(path); has == 0 {
		return nil, cmp.Or(err, error(fserror.New(fserror.NotFound, op, id, "it is not mounted at %s at present", path)))
	}
	s, dead, err := n.stat(ctx, path)
	if dead {
		return nil, fserror.New(fserror.Unavailable, op, path, "the process that served the mount has ended; it is made again within seconds")
	}
	if err != nil {
		return nil, err
	}
	usage := func(unit spec.VolumeUsage_Unit, size, total, free, available uint64) *spec.VolumeUsage {
		return &spec.VolumeUsage{Unit: unit, Total: int64(total * size), Used: int64((total - free) * size), Available: int64(available * size)} //nolint:gosec // less than 2^63
	}
	return &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		usage(spec.VolumeUsage_BYTES, uint64(s.Bsize), s.Blocks, s.Bfree, s.Bavail), //nolint:gosec // it is positive
		usage(spec.VolumeUsage_INODES, 1, s.Files, s.Ffree, s.Ffree),
	}}, nil
}
