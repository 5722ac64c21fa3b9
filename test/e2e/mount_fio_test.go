package e2e_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestMountFio: fio writes and reads in sequence, and appends, and checks each
// byte; random writes are refused with an error that says so.
func TestMountFio(t *testing.T) {
	ctx := deadline(t, 3*time.Minute)
	n := startNamenode(ctx, t)
	m := n.mount(ctx)
	const common = "fio --ioengine=psync --directory=. --fallocate=none --verify=crc32c --verify_state_save=0 --verify_fatal=1 --do_verify=1 "
	for _, job := range []string{
		"--name=write --rw=write --bs=64k --size=16m",
		"--name=odd --rw=write --bs=4093 --size=4093000 --numjobs=3",
		"--name=large --rw=write --bs=4m --size=160m --end_fsync=1", // more than a block
		"--name=append --rw=write --file_append=1 --bs=1000 --size=100000 --fsync=10",
		"--name=append --rw=write --file_append=1 --bs=8k --size=1m --fdatasync=1", // to what is there
	} {
		out := sh(ctx, t, m.dir, common+job)
		if strings.Count(out, "err= 0") == 0 || strings.Contains(out, "verify:") {
			t.Errorf("%s:\n%s", job, tailOf(out))
		}
	}
	// What another mount reads is what was written.
	sh(ctx, t, n.mount(ctx).dir, "fio --ioengine=psync --directory=. --name=write --rw=read --bs=64k --size=16m --verify=crc32c --verify_fatal=1 --verify_state_save=0")
	cmd := exec.CommandContext(ctx, "sh", "-c", common+"--name=random --rw=randwrite --bs=4k --size=1m")
	cmd.Dir = m.dir
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Operation not supported") {
		t.Errorf("random writes: %v: %s", err, out)
	}
}
