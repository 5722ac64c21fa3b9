package csi

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/client/quota"
	"github.com/leasefs/leasefs/internal/filemode"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

const (
	// pathKey is where a volume's context has its directory. A volume that was there before
	// is used by a context that an operator writes.
	pathKey = "path"
	// modeParameter, of a storage class, is the mode of new volumes in octal digits.
	modeParameter = "mode"
	// quotaParameter says "true" where the capacity of new volumes is to be a limit.
	quotaParameter = "quota"
	// recordAttribute is the extended attribute of a volume with its record.
	recordAttribute = "user.leasefs.csi"
	// pageOfVolumes is how many volumes a listing has at most.
	pageOfVolumes = 1000
	// token is what tokens of a listing begin with; the name that comes before follows.
	token = "after:"
)

// controller makes and removes volumes.
type controller struct {
	spec.UnimplementedControllerServer
	fs   *client.FS
	base string
	busy busy
}

// record is what a volume was made with: who asks for it again has to ask for the same.
type record struct {
	Capacity int64  `json:"capacity"` // bytes
	Mode     string `json:"mode"`
	Quota    bool   `json:"quota,omitempty"` // the capacity is a limit
}

func (c *controller) ControllerGetCapabilities(context.Context, *spec.ControllerGetCapabilitiesRequest) (*spec.ControllerGetCapabilitiesResponse, error) {
	resp := new(spec.ControllerGetCapabilitiesResponse)
	for _, t := range []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		spec.ControllerServiceCapability_RPC_LIST_VOLUMES,
		spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		resp.Capabilities = append(resp.Capabilities, &spec.ControllerServiceCapability{Type: &spec.ControllerServiceCapability_Rpc{
			Rpc: &spec.ControllerServiceCapability_RPC{Type: t},
		}})
	}
	return resp, nil
}

// CreateVolume makes a directory. The capacity is noted, and a limit only if the class says so.
func (c *controller) CreateVolume(ctx context.Context, req *spec.CreateVolumeRequest) (*spec.CreateVolumeResponse, error) {
	name := req.GetName()
	if err := checkID("the name", name); err != nil {
		return nil, err
	}
	if len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid(name, "the request has no capabilities")
	}
	for _, one := range req.GetVolumeCapabilities() {
		if _, err := mountOf(name, one); err != nil {
			return nil, err
		}
	}
	if req.GetVolumeContentSource() != nil || len(req.GetMutableParameters()) > 0 {
		return nil, invalid(name, "volumes are made empty, and have no parameters that change: leave out the source and mutable parameters")
	}
	want, err := recordOf(req)
	if err != nil {
		return nil, err
	}
	leave, err := c.busy.take(name)
	if err != nil {
		return nil, err
	}
	defer leave()
	mode, err := filemode.Parse(want.Mode)
	if err != nil {
		return nil, invalid(name, "the parameter mode: %v", err)
	}
	if err := c.fs.MkdirAll(ctx, c.base, 0o711); err != nil {
		return nil, err
	}
	path, has := fspath.Join(c.base, name), want
	err = c.fs.Mkdir(ctx, path, mode)
	made := err == nil
	if errors.Is(err, fserror.Exists) {
		if has, err = c.recorded(ctx, path); client.IsNoXattr(err) { // by a call that did not get to that
			made, has, err = true, want, c.fs.Chmod(ctx, path, mode)
		}
	}
	if err != nil {
		return nil, err
	}
	if limit := req.GetCapacityRange().GetLimitBytes(); has.Mode != want.Mode || has.Quota != want.Quota || has.Capacity < req.GetCapacityRange().GetRequiredBytes() || limit > 0 && has.Capacity > limit {
		return nil, fserror.New(fserror.Exists, op, path, "there is a volume of this name with %d bytes, mode %s and quota %t, which is not what is asked for", has.Capacity, has.Mode, has.Quota)
	}
	if made && has.Quota { // what was recorded has one, which somebody may have raised
		if err := quota.Set(ctx, c.fs, path, quota.Keep, has.Capacity); err != nil {
			return nil, err
		}
	}
	raw, err := json.Marshal(has)
	if err != nil {
		return nil, err
	}
	if err := c.fs.Xattrs(path).Set(ctx, recordAttribute, raw, client.XattrAny); err != nil {
		return nil, err
	}
	return &spec.CreateVolumeResponse{Volume: c.volume(name, has.Capacity)}, nil
}

// recorded is what a volume was made with. Without a record, the error is that of the
// attribute that lacks.
func (c *controller) recorded(ctx context.Context, path string) (has record, err error) {
	info, err := c.fs.Lstat(ctx, path)
	if err != nil {
		return has, err
	}
	if !info.IsDir() {
		return has, fserror.New(fserror.Exists, op, path, "something else than a volume has this name: move it away")
	}
	raw, err := c.fs.Xattrs(path).Get(ctx, recordAttribute)
	if err != nil {
		return has, err
	}
	if err := json.Unmarshal(raw, &has); err != nil {
		return has, fserror.New(fserror.Damaged, op, path, "its attribute %s cannot be read (%v): remove the attribute, and it is written again", recordAttribute, err)
	}
	return has, nil
}

// recordOf is what a request wants.
func recordOf(req *spec.CreateVolumeRequest) (record, error) {
	r := record{Capacity: req.GetCapacityRange().GetRequiredBytes(), Mode: "0755"}
	limit := req.GetCapacityRange().GetLimitBytes()
	if r.Capacity < 0 || limit < 0 || limit > 0 && limit < r.Capacity {
		return r, status.Errorf(codes.OutOfRange, "%s: no volume has at least %d bytes and at most %d", req.GetName(), r.Capacity, limit)
	}
	for key, value := range req.GetParameters() {
		switch {
		case key == modeParameter:
			r.Mode = value
		case key == quotaParameter:
			var err error
			if r.Quota, err = strconv.ParseBool(value); err != nil || r.Quota && r.Capacity == 0 {
				return r, invalid(req.GetName(), "the parameter %s is %.80q for a volume of %d bytes: say true, with a size, or false", key, value, r.Capacity)
			}
		case strings.HasPrefix(key, "csi.storage.k8s.io/"): // whose volume it is: not for drivers
		default:
			return r, invalid(req.GetName(), "there is no parameter %.80q; there are %s and %s", key, modeParameter, quotaParameter)
		}
	}
	return r, nil
}

func (c *controller) volume(id string, capacity int64) *spec.Volume {
	return &spec.Volume{VolumeId: id, CapacityBytes: capacity, VolumeContext: map[string]string{pathKey: fspath.Join(c.base, id)}}
}

// DeleteVolume removes the directory with all that is in it, in one step. One that is not
// there is removed.
func (c *controller) DeleteVolume(ctx context.Context, req *spec.DeleteVolumeRequest) (*spec.DeleteVolumeResponse, error) {
	id := req.GetVolumeId()
	if id == "" {
		return nil, invalid("", "the request names no volume")
	}
	if checkID("the volume's id", id) != nil {
		return new(spec.DeleteVolumeResponse), nil // there is none that is called so
	}
	leave, err := c.busy.take(id)
	if err != nil {
		return nil, err
	}
	defer leave()
	return new(spec.DeleteVolumeResponse), c.fs.RemoveAll(ctx, fspath.Join(c.base, id))
}

func (c *controller) ValidateVolumeCapabilities(ctx context.Context, req *spec.ValidateVolumeCapabilitiesRequest) (*spec.ValidateVolumeCapabilitiesResponse, error) {
	id := req.GetVolumeId()
	if id == "" || len(req.GetVolumeCapabilities()) == 0 {
		return nil, invalid(id, "the request needs a volume and capabilities")
	}
	if err := checkID("the volume's id", id); err != nil {
		return nil, fserror.New(fserror.NotFound, op, id, "%v", err)
	}
	if _, err := c.fs.Stat(ctx, fspath.Join(c.base, id)); err != nil {
		return nil, err
	}
	for _, one := range req.GetVolumeCapabilities() {
		if _, err := mountOf(id, one); err != nil {
			return &spec.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
		}
	}
	return &spec.ValidateVolumeCapabilitiesResponse{Confirmed: &spec.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: req.GetVolumeContext(), VolumeCapabilities: req.GetVolumeCapabilities(), Parameters: req.GetParameters(),
	}}, nil
}

// ListVolumes lists the directories below the base. Capacities are not told.
func (c *controller) ListVolumes(ctx context.Context, req *spec.ListVolumesRequest) (*spec.ListVolumesResponse, error) {
	after, ok := strings.CutPrefix(req.GetStartingToken(), token)
	if !ok && req.GetStartingToken() != "" {
		return nil, status.Errorf(codes.Aborted, "%.80q is not from a listing of volumes: begin without one", req.GetStartingToken())
	}
	limit := int(req.GetMaxEntries())
	switch {
	case limit < 0:
		return nil, invalid("", "at most %d volumes make no listing", limit)
	case limit == 0 || limit > pageOfVolumes:
		limit = pageOfVolumes
	}
	entries, more, err := c.fs.List(ctx, c.base, after, limit)
	if errors.Is(err, fserror.NotFound) {
		return new(spec.ListVolumesResponse), nil // no volume was made yet
	}
	if err != nil {
		return nil, err
	}
	resp := new(spec.ListVolumesResponse)
	for _, e := range entries {
		if e.IsDir() && checkID("", e.Name()) == nil {
			resp.Entries = append(resp.Entries, &spec.ListVolumesResponse_Entry{Volume: c.volume(e.Name(), 0)})
		}
	}
	if more {
		resp.NextToken = token + entries[len(entries)-1].Name()
	}
	return resp, nil
}
