package csi

import (
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

// maxID is how many bytes an id or a name has at most, by the specification.
const maxID = 128

func invalid(volume, format string, args ...any) error {
	return fserror.New(fserror.InvalidArgument, op, volume, format, args...)
}

// checkID checks what is to be the name of a volume's directory.
func checkID(what, id string) error {
	switch {
	case id == "":
		return invalid("", "%s is empty", what)
	case len(id) > maxID:
		return invalid("", "%s has %d bytes, and at most %d are allowed", what, len(id), maxID)
	case id[0] == '.':
		return invalid(id, "%s begins with a dot", what)
	}
	if err := fspath.CheckName(id); err != nil {
		return invalid("", "%s: %v", what, err)
	}
	return nil
}

// wanted is how a volume is to be mounted.
type wanted struct {
	ReadOnly bool     `json:"read_only,omitempty"`
	Alone    bool     `json:"alone,omitempty"` // published at one place only
	Wait     bool     `json:"wait,omitempty"`  // for a holder of a file's lease
	Options  []string `json:"options"`         // as of Mount
}

// mountOf reads a capability. Nodes share volumes in every mode: at most one of them has a
// file open for write at a time.
func mountOf(volume string, c *spec.VolumeCapability) (w wanted, err error) {
	m := c.GetMount()
	if m == nil {
		return w, invalid(volume, "a volume is a file system that is mounted: it is no block device")
	}
	if t := m.GetFsType(); t != "" && t != "leasefs" {
		return w, invalid(volume, "the type of its file system is leasefs, not %.80q: leave it out", t)
	}
	if m.GetVolumeMountGroup() != "" {
		return w, invalid(volume, "no group can be given to a mount: use the mount option gid=N")
	}
	switch mode := c.GetAccessMode().GetMode(); mode {
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY, spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY:
		w.ReadOnly = true
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		w.Alone = true
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER,
		spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER, spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
	default:
		return w, invalid(volume, "there is no access mode %s", mode)
	}
	return w, w.flags(volume, m.GetMountFlags())
}

// flags reads mount options. Only these are taken: others name users, and files of the driver's
// machine.
func (w *wanted) flags(volume string, flags []string) error {
	owner := map[string]string{"uid": "0", "gid": "0"} // root of a pod, unless the class says otherwise
	for _, f := range flags {
		switch name, value, _ := strings.Cut(f, "="); {
		case f == "ro":
			w.ReadOnly = true
		case f == "rw", f == "nosuid", f == "nodev", f == "busy=error": // they are so
		case f == "noexec":
			w.Options = append(w.Options, f)
		case f == "busy=wait":
			w.Wait = true
		case owner[name] != "":
			if _, err := strconv.ParseUint(value, 10, 32); err != nil {
				return invalid(volume, "the mount option %.80q has no number", f)
			}
			owner[name] = value
		default:
			return invalid(volume, "there is no mount option %.80q; there are ro, noexec, busy=wait, uid=N and gid=N", f)
		}
	}
	w.Options = append(w.Options, "uid="+owner["uid"], "gid="+owner["gid"])
	return nil
}
