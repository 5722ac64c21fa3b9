package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	rpcstatus "google.golang.org/grpc/status"
)

// driver is a CSI driver in a process of its own, with the controller and a node.
type driver struct {
	*process
	csi.ControllerClient
	csi.NodeClient
	n   *namenode
	dir string // of its socket, ledger, and what it mounts
}

// driver starts one in a folder, which has what one before it left.
func (n *namenode) driver(ctx context.Context, dir string, flags ...string) *driver {
	n.t.Helper()
	n.t.Cleanup(func() { unmountAll(n.t, dir) })
	d := &driver{n: n, dir: dir}
	argv := append([]string{"csi", "--endpoint", "unix://" + d.path("sock"), "--controller", "--node-id", filepath.Base(dir), "--state", d.path("state")}, flags...)
	d.process = n.begin(ctx, nil, argv...)
	d.prints(ctx, d.out, "ready", func(s string) bool { return strings.HasPrefix(s, "ready ") })
	conn, err := grpc.NewClient("unix://"+d.path("sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { conn.Close() })
	d.ControllerClient, d.NodeClient = csi.NewControllerClient(conn), csi.NewNodeClient(conn)
	return d
}

// unmountAll ends all mounts below a folder, the latest first.
func unmountAll(t testing.TB, dir string) {
	for _, m := range mountsBelow(t, dir) {
		_ = unix.Unmount(m, unix.MNT_DETACH)
	}
}

// mountsBelow are the mounts below a folder, the latest first.
func mountsBelow(t testing.TB, dir string) []string {
	t.Helper()
	return mountsOf(t, "/proc/self", dir+"/")
}

// mountsOf are the mounts with a prefix that a process sees, the latest first.
func mountsOf(t testing.TB, process, prefix string) (list []string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(process, "mountinfo"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, prefix) {
			list = append([]string{at}, list...)
		}
	}
	return list
}

// kill ends the driver alone. Its mounts have its standard error, for whose end process.kill waits.
func (d *driver) kill(ctx context.Context) {
	d.t.Helper()
	d.signal(syscall.SIGKILL)
	eventually(ctx, d.t, "the driver is gone", func() bool { return errors.Is(syscall.Kill(d.cmd.Process.Pid, 0), syscall.ESRCH) })
}

func (d *driver) path(name string) string { return filepath.Join(d.dir, name) }

// ok ends the test if a call failed.
func (d *driver) ok(err error) {
	d.t.Helper()
	if err != nil {
		d.t.Fatalf("%v\n%s", err, tailOf(d.err.String()))
	}
}

func capability(mode csi.VolumeCapability_AccessMode_Mode, flags ...string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: mode},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{MountFlags: flags}},
	}
}

const shared = csi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER

func (d *driver) create(ctx context.Context, name string) *csi.Volume {
	d.t.Helper()
	resp, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability(shared)}, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30},
	})
	d.ok(err)
	return resp.GetVolume()
}

func (d *driver) staging(v *csi.Volume) string { return d.path("staging-" + v.GetVolumeId()) }

func (d *driver) stageRequest(v *csi.Volume, secrets map[string]string) *csi.NodeStageVolumeRequest {
	d.t.Helper()
	if err := os.Mkdir(d.staging(v), 0o750); err != nil && !errors.Is(err, fs.ErrExist) { // as the orchestrator does
		d.t.Fatal(err)
	}
	return &csi.NodeStageVolumeRequest{
		VolumeId: v.GetVolumeId(), StagingTargetPath: d.staging(v), VolumeCapability: capability(shared), VolumeContext: v.GetVolumeContext(), Secrets: secrets,
	}
}

func (d *driver) publishRequest(v *csi.Volume, target string, readOnly bool) *csi.NodePublishVolumeRequest {
	return &csi.NodePublishVolumeRequest{
		VolumeId: v.GetVolumeId(), StagingTargetPath: d.staging(v), TargetPath: d.path(target), VolumeCapability: capability(shared), VolumeContext: v.GetVolumeContext(), Readonly: readOnly,
	}
}

// stage stages a volume and publishes it at a target.
func (d *driver) publish(ctx context.Context, v *csi.Volume, target string) string {
	d.t.Helper()
	_, err := d.NodeStageVolume(ctx, d.stageRequest(v, nil))
	d.ok(err)
	_, err = d.NodePublishVolume(ctx, d.publishRequest(v, target, false))
	d.ok(err)
	return d.path(target)
}

func (d *driver) unpublish(ctx context.Context, v *csi.Volume, target string) {
	d.t.Helper()
	_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: d.path(target)})
	d.ok(err)
}

func (d *driver) unstage(ctx context.Context, v *csi.Volume) {
	d.t.Helper()
	_, err := d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: d.staging(v)})
	d.ok(err)
}

// mounter is the process that serves a volume's mount, and its command line.
func (d *driver) mounter(v *csi.Volume) (pid int, argv string) {
	d.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		d.t.Fatal(err)
	}
	for _, file := range all {
		raw, err := os.ReadFile(file)
		if err == nil && strings.HasSuffix(string(raw), "\x00"+d.staging(v)+"\x00") {
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err != nil {
				d.t.Fatal(err)
			}
			return pid, string(raw)
		}
	}
	return 0, ""
}

func write(name, text string) error { return os.WriteFile(name, []byte(text), 0o600) }

// TestCSISanity: what Kubernetes holds drivers to.
func TestCSISanity(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	n := startNamenode(ctx, t)
	d := n.driver(ctx, t.TempDir())
	tool, err := filepath.Abs("../../.cache/bin/csi-sanity")
	if err != nil {
		t.Fatal(err)
	}
	p := start(ctx, t, spec{argv: []string{tool, "--csi.endpoint", d.path("sock"), "--csi.mountdir", d.path("target"), "--csi.stagingdir", d.path("staging"), "--ginkgo.no-color"}, stdin: reader("")})
	code := p.wait(ctx)
	_, last, _ := strings.Cut(p.out.String(), "\nRan ")
	t.Logf("Ran %s", last)
	if code != 0 || !strings.Contains(last, "SUCCESS!") {
		t.Errorf("exit code %d\n%s\n%s", code, p.out, d.err)
	}
	if left := mountsBelow(t, d.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if out := n.run(ctx, "ls", "/volumes"); out != "" {
		t.Errorf("still there: %s", out)
	}
}

// TestCSIVolume: two nodes share a volume, a file of which has one writer; each call may come
// twice; and a volume ends with all that is in it.
func TestCSIVolume(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	a, b := n.driver(ctx, t.TempDir()), n.driver(ctx, t.TempDir())
	v := a.create(ctx, "data")
	if again := a.create(ctx, "data"); again.GetVolumeId() != v.GetVolumeId() {
		t.Errorf("made twice: %v", again)
	}
	onA, onB := a.publish(ctx, v, "pod"), b.publish(ctx, v, "pod")
	a.publish(ctx, v, "pod") // both calls again

	held, err := os.OpenFile(filepath.Join(onA, "log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.WriteString("from a\n"); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(onB, "log"), "from b\n"); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second node writes what one has open: %v", err)
	}
	if err := write(filepath.Join(onB, "other"), "from b\n"); err != nil {
		t.Error(err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(onB, "log"), "from b\n"); err != nil {
		t.Errorf("after its close: %v", err)
	}
	if raw, err := os.ReadFile(filepath.Join(onA, "log")); err != nil || string(raw) != "from b\n" {
		t.Errorf("%q, %v", raw, err)
	}

	// A second target, which cannot be written to; not again as one that can.
	for range 2 {
		_, err = a.NodePublishVolume(ctx, a.publishRequest(v, "reader", true))
		a.ok(err)
	}
	if err := write(a.path("reader/no"), ""); !errors.Is(err, syscall.EROFS) {
		t.Errorf("written to what is read-only: %v", err)
	}
	if _, err := a.NodePublishVolume(ctx, a.publishRequest(v, "reader", false)); rpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("published there in another way: %v", err)
	}
	if _, err := a.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: a.staging(v)}); rpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("unstaged while it is published: %v", err)
	}
	// Not under the name of another volume.
	if _, err := a.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "another", TargetPath: onA}); rpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("unpublished as another volume: %v", err)
	}
	if _, err := a.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "another", StagingTargetPath: a.staging(v)}); rpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("unstaged as another volume: %v", err)
	}
	// Nor is another volume where this one is, or where something else is mounted.
	other := a.create(ctx, "other")
	stage := a.stageRequest(other, nil)
	stage.StagingTargetPath = a.staging(v)
	if _, err := a.NodeStageVolume(ctx, stage); rpcstatus.Code(err) != codes.InvalidArgument {
		t.Errorf("staged where another volume is: %v", err)
	}
	stage.StagingTargetPath = a.staging(other)
	if err := unix.Mount(onA, a.staging(other), "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := a.NodeStageVolume(ctx, stage); rpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("staged where something is mounted: %v", err)
	}
	if err := unix.Unmount(a.staging(other), 0); err != nil {
		t.Fatal(err)
	}
	a.publish(ctx, other, "other")
	for _, at := range []string{"pod", filepath.Base(a.staging(v))} {
		if _, err := a.NodePublishVolume(ctx, a.publishRequest(other, at, false)); rpcstatus.Code(err) != codes.InvalidArgument {
			t.Errorf("published at %s, where another volume is: %v", at, err)
		}
	}
	if _, err := a.NodePublishVolume(ctx, a.publishRequest(other, filepath.Base(a.staging(other)), false)); rpcstatus.Code(err) != codes.FailedPrecondition {
		t.Errorf("published where it is staged: %v", err)
	}
	if there, err := os.ReadDir(a.path("other")); err != nil || len(there) != 0 {
		t.Errorf("the other volume has %v, %v", there, err)
	}
	a.unpublish(ctx, other, "other")
	a.unstage(ctx, other)
	_, err = a.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: other.GetVolumeId()})
	a.ok(err)
	if raw, err := os.ReadFile(filepath.Join(onA, "log")); err != nil || string(raw) != "from b\n" {
		t.Errorf("then: %q, %v", raw, err)
	}
	stats, err := a.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: onA})
	a.ok(err)
	if u := stats.GetUsage(); len(u) != 2 || u[0].GetTotal() <= 0 || u[0].GetAvailable() <= 0 {
		t.Errorf("%v", u)
	}

	for _, d := range []*driver{a, b} {
		for range 2 {
			d.unpublish(ctx, v, "reader")
			d.unpublish(ctx, v, "pod")
			d.unstage(ctx, v)
		}
		eventually(ctx, t, "the mount's process ends", func() bool { pid, _ := d.mounter(v); return pid == 0 })
		if left := mountsBelow(t, d.dir); len(left) > 0 {
			t.Errorf("still mounted: %v", left)
		}
		if left, err := os.ReadDir(d.path("state")); err != nil || len(left) != 1 {
			t.Errorf("the ledger has %v, %v", left, err)
		}
	}
	for range 2 {
		_, err = b.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
		b.ok(err)
	}
	if out := n.run(ctx, "ls", "/volumes"); out != "" {
		t.Errorf("still there: %s", out)
	}

	// Where the class says so, the capacity is a limit, whoever asks again.
	limited := &csi.CreateVolumeRequest{
		Name: "limited", VolumeCapabilities: []*csi.VolumeCapability{capability(shared)}, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20}, Parameters: map[string]string{"quota": "true"},
	}
	for range 2 {
		made, err := a.CreateVolume(ctx, limited)
		a.ok(err)
		v = made.GetVolume()
	}
	onA = a.publish(ctx, v, "limited")
	if err := write(filepath.Join(onA, "fits"), strings.Repeat("x", 1<<20)); err != nil {
		t.Error(err)
	}
	if err := write(filepath.Join(onA, "more"), "x"); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("written beyond the capacity: %v", err)
	}
	stats, err = a.NodeGetVolumeStats(ctx, &csi.NodeGetVolumeStatsRequest{VolumeId: v.GetVolumeId(), VolumePath: onA})
	a.ok(err)
	if u := stats.GetUsage(); len(u) != 2 || u[0].GetTotal() != 1<<20 || u[0].GetAvailable() != 0 {
		t.Errorf("of a full volume: %v", u)
	}
	limited.Parameters["quota"] = "false"
	if _, err := a.CreateVolume(ctx, limited); rpcstatus.Code(err) != codes.AlreadyExists {
		t.Errorf("the same name without a quota: %v", err)
	}
	limited.Parameters["quota"] = "1Gi"
	if _, err := a.CreateVolume(ctx, limited); rpcstatus.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "say true, with a size, or false") {
		t.Errorf("a quota that is none: %v", err)
	}
	a.unpublish(ctx, v, "limited")
	a.unstage(ctx, v)
	_, err = a.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.GetVolumeId()})
	a.ok(err)

	// All volumes come in pages.
	for i := range 5 {
		a.create(ctx, fmt.Sprint("v", i))
	}
	var pages, all int
	for req := new(csi.ListVolumesRequest); pages == 0 || req.GetStartingToken() != ""; pages++ {
		req.MaxEntries = 2
		resp, err := a.ListVolumes(ctx, req)
		a.ok(err)
		all, req.StartingToken = all+len(resp.GetEntries()), resp.GetNextToken()
	}
	if pages != 3 || all != 5 {
		t.Errorf("%d pages, %d volumes", pages, all)
	}
}

// TestCSIMountsLive: a mount outlives its driver, which finds it again; and one whose process
// was killed is made again at all places, by the driver that runs and by the one that comes.
func TestCSIMountsLive(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t, "--cache-term", "1s")
	d := n.driver(ctx, t.TempDir())
	v := d.create(ctx, "data")
	target := d.publish(ctx, v, "pod")
	_, err := d.NodePublishVolume(ctx, d.publishRequest(v, "reader", true))
	d.ok(err)
	held, err := os.OpenFile(filepath.Join(target, "log"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	first, _ := d.mounter(v)
	d.kill(ctx)
	if _, err := held.WriteString("written without a driver\n"); err != nil {
		t.Errorf("the driver was killed: %v", err)
	}
	if err := held.Sync(); err != nil {
		t.Errorf("the driver was killed: %v", err)
	}
	d = n.driver(ctx, d.dir)
	d.publish(ctx, v, "pod")
	if pid, _ := d.mounter(v); pid != first {
		t.Errorf("the mount's process is %d now, was %d", pid, first)
	}
	works := func() bool {
		raw, err := os.ReadFile(d.path("reader/log"))
		return err == nil && string(raw) == "written without a driver\n" && write(filepath.Join(target, "more"), "x") == nil &&
			errors.Is(write(d.path("reader/no"), ""), syscall.EROFS)
	}
	end := func() {
		t.Helper()
		pid, _ := d.mounter(v)
		if pid == 0 {
			t.Fatal("no process serves the mount")
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(ctx, t, "it is gone", func() bool { now, _ := d.mounter(v); return now != pid })
	}
	end()
	eventually(ctx, t, "the driver makes the mount again", works)

	end()
	d.publish(ctx, v, "pod") // sooner than that the orchestrator may ask, too
	if err := write(filepath.Join(target, "more"), "x"); err != nil {
		t.Errorf("at once: %v", err)
	}

	d.kill(ctx)
	end()
	if _, err := os.Stat(target); !errors.Is(err, syscall.ENOTCONN) && !errors.Is(err, syscall.ECONNABORTED) { // the second while it ends
		t.Fatalf("without a driver: %v", err)
	}
	d = n.driver(ctx, d.dir)
	eventually(ctx, t, "the next driver makes the mount again", works)

	// A dead mount can be taken away.
	d.kill(ctx)
	end()
	d = n.driver(ctx, d.dir)
	until := func(what string, f func() error) {
		eventually(ctx, t, what, func() bool { return f() == nil }) // Aborted: the driver is at it itself
	}
	for _, at := range []string{"pod", "reader"} {
		until("unpublish", func() error {
			_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: d.path(at)})
			return err
		})
	}
	until("unstage", func() error {
		_, err := d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: d.staging(v)})
		return err
	})
	if left := mountsBelow(t, d.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// TestCSICreateKilled: a volume that a controller did not get to finish, or to tell of, is made
// whole by the next call, which asks for the same.
func TestCSICreateKilled(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	d := n.driver(ctx, t.TempDir())
	n.run(ctx, "mkdir", "-p", "--mode", "0711", "/volumes/half") // it is made, and no more
	request := func(i int) *csi.CreateVolumeRequest {
		name := fmt.Sprint("v", i)
		if i == 0 {
			name = "half"
		}
		return &csi.CreateVolumeRequest{
			Name: name, VolumeCapabilities: []*csi.VolumeCapability{capability(shared)}, Parameters: map[string]string{"mode": "0750"}, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 20},
		}
	}
	const volumes = 40
	var calls sync.WaitGroup
	answers := make(chan error, volumes)
	for i := range volumes {
		calls.Go(func() { _, err := d.CreateVolume(ctx, request(i)); answers <- err })
	}
	if err := <-answers; err != nil {
		t.Error(err)
	}
	d.kill(ctx)
	calls.Wait()
	d = n.driver(ctx, d.dir)
	for i := range volumes {
		resp, err := d.CreateVolume(ctx, request(i))
		d.ok(err)
		if got := resp.GetVolume(); got.GetCapacityBytes() != 1<<20 {
			t.Errorf("%v", got)
		}
		other := request(i)
		other.CapacityRange.RequiredBytes = 1 << 30
		if _, err := d.CreateVolume(ctx, other); rpcstatus.Code(err) != codes.AlreadyExists {
			t.Errorf("with another capacity: %v", err)
		}
	}
	if out := n.run(ctx, "ls", "-l", "/volumes"); strings.Count(out, "rwxr-x---") != volumes {
		t.Errorf("not all have the mode that was asked for: %s", out)
	}
}

// TestCSIPublishKilled: a driver that is killed while it stages and publishes leaves nothing that
// the next one does not make whole, or take away.
func TestCSIPublishKilled(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t, "--cache-term", "1s")
	d := n.driver(ctx, t.TempDir())
	const volumes = 4
	var all []*csi.Volume
	var calls sync.WaitGroup
	answers := make(chan error, volumes)
	for i := range volumes {
		v := d.create(ctx, fmt.Sprint("v", i))
		all = append(all, v)
		stage, publish, nodes := d.stageRequest(v, nil), d.publishRequest(v, v.GetVolumeId(), false), d.NodeClient
		calls.Go(func() {
			_, err := nodes.NodeStageVolume(ctx, stage)
			if err == nil {
				_, err = nodes.NodePublishVolume(ctx, publish)
			}
			answers <- err
		})
	}
	if err := <-answers; err != nil {
		t.Error(err)
	}
	d.kill(ctx)
	calls.Wait()
	d = n.driver(ctx, d.dir)
	until := func(what string, f func() error) {
		t.Helper()
		eventually(ctx, t, what, func() bool {
			err := f()
			if err != nil && rpcstatus.Code(err) != codes.Aborted { // the driver is at it itself
				t.Fatalf("%s: %v", what, err)
			}
			return err == nil
		})
	}
	for _, v := range all[:volumes-1] {
		until("stage", func() error { _, err := d.NodeStageVolume(ctx, d.stageRequest(v, nil)); return err })
		until("publish", func() error {
			_, err := d.NodePublishVolume(ctx, d.publishRequest(v, v.GetVolumeId(), false))
			return err
		})
		if err := write(filepath.Join(d.path(v.GetVolumeId()), "f"), "x"); err != nil {
			t.Error(err)
		}
	}
	for _, v := range all { // the last one was given up meanwhile
		until("unpublish", func() error {
			_, err := d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.GetVolumeId(), TargetPath: d.path(v.GetVolumeId())})
			return err
		})
		until("unstage", func() error {
			_, err := d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.GetVolumeId(), StagingTargetPath: d.staging(v)})
			return err
		})
		eventually(ctx, t, "no process serves it", func() bool { pid, _ := d.mounter(v); return pid == 0 })
	}
	if left := mountsBelow(t, d.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	if left, err := os.ReadDir(d.path("state")); err != nil || len(left) != 1 {
		t.Errorf("the ledger has %v, %v", left, err)
	}
}

// TestCSIPods: when the process of a mount is killed, a pod that takes mounts of the host
// (HostToContainer) has the next one, without more rights than before; another pod has a mount
// that has ended until it is started again. As often as it happens, mounts do not pile up.
func TestCSIPods(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t, "--cache-term", "1s")
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil { // as the folder of a kubelet is
		t.Fatal(err)
	}
	d := n.driver(ctx, dir)
	v := d.create(ctx, "data")
	target := d.publish(ctx, v, "pod")
	if err := write(filepath.Join(target, "f"), "text"); err != nil {
		t.Fatal(err)
	}
	_, err := d.NodePublishVolume(ctx, d.publishRequest(v, "reader", true))
	d.ok(err)
	// in runs a line of a shell in a pod's mounts, where the volume is $at.
	in := func(p *process, line string) (string, error) {
		out, err := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--mount=/proc/%d/ns/mnt", p.cmd.Process.Pid), "sh", "-c", "at="+d.path("at")+"; "+line).CombinedOutput()
		return string(out), err
	}
	pod := func(of, how string) *process {
		t.Helper()
		if err := os.Mkdir(d.path("at"), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
		p := start(ctx, t, spec{argv: []string{"unshare", "--mount", "--propagation=slave", "sh", "-ec", `mount --bind "$1" "$2"; mount --make-"$3" "$2"; echo up; exec cat`, "sh", d.path(of), d.path("at"), how}})
		p.prints(ctx, p.out, "up", func(s string) bool { return s == "up\n" })
		return p
	}
	takes, alone, reader := pod("pod", "slave"), pod("pod", "private"), pod("reader", "slave")
	for range 2 {
		was, _ := d.mounter(v)
		if err := syscall.Kill(was, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(ctx, t, "it is gone", func() bool { now, _ := d.mounter(v); return now != was })
		d.publish(ctx, v, "pod") // sooner than the driver sees it by itself
		_, err := d.NodePublishVolume(ctx, d.publishRequest(v, "reader", true))
		d.ok(err)
		for what, p := range map[string]*process{"takes": takes, "reader": reader} {
			if out, err := in(p, "cat $at/f"); out != "text" {
				t.Errorf("a pod (%s) sees %q, %v", what, out, err)
			}
		}
		if out, err := in(takes, "echo more >$at/g"); err != nil {
			t.Errorf("a pod cannot write: %s", out)
		}
		if out, err := in(reader, "echo more >$at/g"); err == nil || !strings.Contains(out, "Read-only") {
			t.Errorf("a pod with a volume to read writes: %q, %v", out, err)
		}
		if out, err := in(alone, "cat $at/f"); err == nil || !strings.Contains(out, "not connected") {
			t.Errorf("a pod that takes no mounts sees %q, %v", out, err)
		}
		if at := mountsBelow(t, d.dir); len(at) != 5 {
			t.Errorf("%d mounted: %v", len(at), strings.ReplaceAll(strings.Join(at, " "), d.dir, ""))
		}
	}
	d.unpublish(ctx, v, "reader")
	d.unpublish(ctx, v, "pod")
	d.unstage(ctx, v)
	if left := mountsBelow(t, d.dir); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
}

// TestCSIHostile: what no orchestrator should say does no harm.
func TestCSIHostile(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 2*time.Minute)
	n := startNamenode(ctx, t)
	n.run(ctx, "mkdir", "/keep")
	// What the driver should not mount at, it mounts at in its own view of this machine.
	n.from = append(n.from, "unshare", "--mount")
	d := n.driver(ctx, t.TempDir())
	view := fmt.Sprintf("/proc/%d", d.cmd.Process.Pid)
	mounted := len(mountsOf(t, view, d.dir+"/"))
	v := d.create(ctx, "data")
	t.Cleanup(func() {
		if pid, _ := d.mounter(v); pid != 0 { // only if the test has failed
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	caps := []*csi.VolumeCapability{capability(shared)}
	code := func(what string, err error, want ...codes.Code) {
		t.Helper()
		for _, c := range want {
			if rpcstatus.Code(err) == c {
				return
			}
		}
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	huge := strings.Repeat("x", 1<<20)
	for _, name := range []string{"../keep", "..", ".", "", "/keep", "a/b", ".hidden", "a\x00b", huge} {
		_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: name, VolumeCapabilities: caps})
		code(fmt.Sprintf("create %.20q", name), err, codes.InvalidArgument)
		_, err = d.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: name})
		code(fmt.Sprintf("delete %.20q", name), err, codes.OK, codes.InvalidArgument)
		_, err = d.ValidateVolumeCapabilities(ctx, &csi.ValidateVolumeCapabilitiesRequest{VolumeId: name, VolumeCapabilities: caps})
		code(fmt.Sprintf("validate %.20q", name), err, codes.NotFound, codes.InvalidArgument)
		req := d.publishRequest(v, "pod", false)
		req.VolumeId = name
		_, err = d.NodePublishVolume(ctx, req)
		code(fmt.Sprintf("publish %.20q", name), err, codes.FailedPrecondition, codes.InvalidArgument)
	}
	n.run(ctx, "stat", "/keep")
	n.run(ctx, "stat", "/volumes/data")

	for what, change := range map[string]func(*csi.CreateVolumeRequest){
		"a parameter": func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"nope": "1"} },
		"a mode":      func(r *csi.CreateVolumeRequest) { r.Parameters = map[string]string{"mode": "9"} },
		"a device": func(r *csi.CreateVolumeRequest) {
			r.VolumeCapabilities[0] = &csi.VolumeCapability{AccessType: &csi.VolumeCapability_Block{}}
		},
		"a file system": func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].GetMount().FsType = "ext4" },
		"no mode":       func(r *csi.CreateVolumeRequest) { r.VolumeCapabilities[0].AccessMode = nil },
		"a source":      func(r *csi.CreateVolumeRequest) { r.VolumeContentSource = new(csi.VolumeContentSource) },
	} {
		req := &csi.CreateVolumeRequest{Name: "new", VolumeCapabilities: []*csi.VolumeCapability{capability(shared)}}
		change(req)
		_, err := d.CreateVolume(ctx, req)
		code(what, err, codes.InvalidArgument)
	}
	for _, r := range []*csi.CapacityRange{{RequiredBytes: -1}, {LimitBytes: -1}, {RequiredBytes: 2, LimitBytes: 1}} {
		_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "new", VolumeCapabilities: caps, CapacityRange: r})
		code(r.String(), err, codes.OutOfRange)
	}
	n.write(ctx, "a file\n", "create", "/volumes/file")
	_, err := d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "file", VolumeCapabilities: caps})
	code("a file", err, codes.AlreadyExists)
	_, err = d.CreateVolume(ctx, &csi.CreateVolumeRequest{Name: "data", VolumeCapabilities: caps, CapacityRange: &csi.CapacityRange{RequiredBytes: 1 << 30}, Parameters: map[string]string{"mode": "0700"}})
	code("its name with another mode", err, codes.AlreadyExists)
	_, err = d.NodePublishVolume(ctx, d.publishRequest(&csi.Volume{VolumeId: "none", VolumeContext: map[string]string{"path": "/volumes/none"}}, "pod", false))
	code("publish what is not there", err, codes.FailedPrecondition)

	if err := os.Symlink(t.TempDir(), d.path("link")); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*csi.NodeStageVolumeRequest){
		"an option that names a file": func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = capability(shared, "token_file=/etc/shadow") },
		"an option with two":          func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = capability(shared, "uid=1,suid") },
		"a user":                      func(r *csi.NodeStageVolumeRequest) { r.VolumeCapability = capability(shared, "as=root") },
		"a secret":                    func(r *csi.NodeStageVolumeRequest) { r.Secrets = map[string]string{"tok": "x"} },
		"no directory":                func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = nil },
		"a relative directory":        func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"path": "volumes"} },
		"the root":                    func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/" },
		"a relative path":             func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "here" },
		"a long path":                 func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = "/" + huge },
		"a directory with dots":       func(r *csi.NodeStageVolumeRequest) { r.VolumeContext = map[string]string{"path": "/volumes/../keep"} },
		"a link":                      func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath = d.path("link") },
		"a path with dots":            func(r *csi.NodeStageVolumeRequest) { r.StagingTargetPath += "/../x" },
	} {
		req := d.stageRequest(v, nil)
		change(req)
		_, err := d.NodeStageVolume(ctx, req)
		code(what, err, codes.InvalidArgument)
	}
	req := d.stageRequest(v, nil)
	req.VolumeContext = map[string]string{"path": "/nowhere"}
	_, err = d.NodeStageVolume(ctx, req)
	code("a directory that is not there", err, codes.NotFound)
	req.VolumeContext = v.GetVolumeContext()
	req.Secrets = map[string]string{"user": "--json"}
	_, err = d.NodeStageVolume(ctx, req)
	code("a user like a flag", err, codes.OK, codes.InvalidArgument, codes.Internal)
	d.unstage(ctx, v)

	// What is not the driver's is neither unmounted nor removed.
	other := d.path("other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := write(filepath.Join(other, "kept"), "x"); err != nil {
		t.Fatal(err)
	}
	_, err = d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "data", TargetPath: other})
	code("a folder with something in it", err, codes.FailedPrecondition)
	_, err = d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "data", TargetPath: filepath.Join(other, "kept")})
	code("a file", err, codes.FailedPrecondition)
	_, err = d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "data", TargetPath: d.path("link")})
	code("a link", err, codes.InvalidArgument)
	if raw, err := os.ReadFile(filepath.Join(other, "kept")); err != nil || string(raw) != "x" {
		t.Errorf("%q, %v", raw, err)
	}
	if out, err := exec.CommandContext(ctx, "nsenter", "--mount="+view+"/ns/mnt", "mount", "-t", "tmpfs", "none", other).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = d.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: "data", TargetPath: other})
	code("another's mount", err, codes.FailedPrecondition)
	_, err = d.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: "data", StagingTargetPath: other})
	code("another's mount", err, codes.FailedPrecondition)
	if left := mountsOf(t, view, d.dir+"/"); !slices.Contains(left, other) || len(left) != mounted+1 {
		t.Errorf("mounted: %v", left)
	}

	// One driver has the socket and the ledger, and a file in the place of a socket stays.
	if err := write(d.path("file"), "x"); err != nil {
		t.Fatal(err)
	}
	p := n.begin(ctx, nil, "csi", "--endpoint", "unix://"+d.path("sock"), "--controller")
	p.ends(ctx, 4)
	p = n.begin(ctx, nil, "csi", "--endpoint", "unix://"+d.path("sock2"), "--node-id", "x", "--state", d.path("state"))
	p.ends(ctx, 4)
	p = n.begin(ctx, nil, "csi", "--endpoint", "unix://"+d.path("file"), "--controller")
	p.ends(ctx, 4)
	if raw, err := os.ReadFile(d.path("file")); err != nil || string(raw) != "x" {
		t.Errorf("%q, %v", raw, err)
	}
	for _, argv := range [][]string{{"--endpoint", "tcp://127.0.0.1:0", "--controller"}, {"--endpoint", "unix:///x"}, {"--controller"}, {"--endpoint", "unix:///x", "--controller", "--state", "/x"}} {
		p := n.begin(ctx, nil, append([]string{"csi"}, argv...)...)
		p.ends(ctx, 2)
	}
}

// TestCSISecrets: a volume is mounted with the token of its secret, which no command line has.
func TestCSISecrets(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 2*time.Minute)
	dir := t.TempDir()
	var lines []string
	token := func(user string) string { return filepath.Join(dir, user+".token") }
	for _, user := range []string{"root", "ann"} {
		made := start(ctx, t, spec{argv: []string{leasefs, "admin", "token", token(user), user}})
		made.ends(ctx, 0)
		lines = append(lines, made.out.String())
	}
	if err := write(filepath.Join(dir, "tokens"), strings.Join(lines, "")); err != nil {
		t.Fatal(err)
	}
	n := startNamenode(ctx, t, "--tokens", filepath.Join(dir, "tokens"))
	d := n.driver(ctx, t.TempDir(), "--token-file", token("root"))
	v := d.create(ctx, "data")
	n.run(ctx, "--token-file", token("root"), "chown", "ann", "/volumes/data")
	secret, err := os.ReadFile(token("ann"))
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"user": "ann", "token": string(secret)}
	_, err = d.NodeStageVolume(ctx, d.stageRequest(v, map[string]string{"user": "ann", "token": "wrong"}))
	if c := rpcstatus.Code(err); c != codes.PermissionDenied && c != codes.Internal || strings.Contains(err.Error(), "wrong") {
		t.Errorf("with a wrong token: %v", err)
	}
	_, err = d.NodeStageVolume(ctx, d.stageRequest(v, secrets))
	d.ok(err)
	_, err = d.NodePublishVolume(ctx, d.publishRequest(v, "pod", false))
	d.ok(err)
	if err := write(d.path("pod/f"), "x"); err != nil {
		t.Fatal(err)
	}
	if out := n.run(ctx, "--token-file", token("root"), "stat", "/volumes/data/f"); !strings.Contains(out, "ann") {
		t.Errorf("whose is it? %s", out)
	}
	pid, argv := d.mounter(v)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"the command line": argv, "the environment": string(environment), "the log": d.err.String()} {
		if strings.Contains(text, strings.TrimSpace(string(secret))) {
			t.Errorf("%s has the token", where)
		}
	}
	files, err := filepath.Glob(d.path("state/*.token"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	d.unpublish(ctx, v, "pod")
	d.unstage(ctx, v)
	if out, err := exec.CommandContext(ctx, "grep", "-rl", strings.TrimSpace(string(secret)), d.dir).Output(); err == nil {
		t.Errorf("the token is left in %s", out)
	}
}
