package namespace

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/leasefs/leasefs/internal/posixacl"
)

// linuxUser is a user of this machine: a thread of its own that has become that user.
type linuxUser struct {
	call Call
	do   chan func()
}

func (u *linuxUser) run(fn func()) {
	done := make(chan struct{})
	u.do <- func() { fn(); close(done) }
	<-done
}

// newLinuxUser starts a thread as a user in groups; uid -1: as who runs the test, with a umask
// of its own.
func newLinuxUser(t *testing.T, uid int, groups ...uint32) *linuxUser {
	u := &linuxUser{do: make(chan func())}
	if u.call.User = strconv.Itoa(uid); uid < 0 {
		u.call.User = strconv.Itoa(os.Getuid())
		own, err := os.Getgroups()
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range append(own, os.Getgid()) {
			u.call.Groups = append(u.call.Groups, strconv.Itoa(g))
		}
	}
	for _, g := range groups {
		u.call.Groups = append(u.call.Groups, strconv.FormatUint(uint64(g), 10))
	}
	began := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		began <- become(uid, groups)
		for fn := range u.do {
			fn()
		}
	}()
	if err := <-began; err != nil {
		t.Fatalf("becoming user %d: %v", uid, err)
	}
	t.Cleanup(func() { close(u.do) })
	return u
}

// become changes who this thread is: the raw calls leave the others as they are.
func become(uid int, groups []uint32) error {
	if uid < 0 {
		return unix.Unshare(unix.CLONE_FS)
	}
	gid := uintptr(groups[0])
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(unsafe.Pointer(&groups[0])), 0); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return e
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); e != 0 {
		return e
	}
	return nil
}

// linuxDir is a folder of a file system that has ACLs.
func linuxDir(t *testing.T) string {
	dir := t.TempDir()
	acl := posixacl.FromMode(0o755).EncodeLinux(nil, nil)
	if unix.Setxattr(dir, posixacl.XattrAccess, acl, 0) == nil {
		return dir
	}
	dir, err := os.MkdirTemp("/dev/shm", "leasefs-acl") //nolint:usetesting // another file system
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := unix.Setxattr(dir, posixacl.XattrAccess, acl, 0); err != nil {
		t.Fatalf("neither the folder for temporary files nor /dev/shm has ACLs: %v", err)
	}
	return dir
}

var (
	linuxUIDs = []string{"64001", "64002", "64003"}
	linuxGIDs = []string{"65001", "65002", "65003"}
)

func linuxID(name string) (uint32, bool) {
	n, err := strconv.ParseUint(name, 10, 32)
	return uint32(n), err == nil
}

func linuxName(id uint32) string { return strconv.FormatUint(uint64(id), 10) }

// drawACL draws an ACL that can be.
func drawACL(t *rapid.T) posixacl.ACL {
	perm := rapid.Uint8Range(0, 7)
	a := posixacl.FromMode(rapid.Uint16Range(0, 0o777).Draw(t, "mode"))
	named := false
	for tag, names := range map[posixacl.Tag][]string{posixacl.User: linuxUIDs, posixacl.Group: linuxGIDs} {
		for _, name := range names {
			if rapid.Bool().Draw(t, name) {
				a, named = append(a, posixacl.Entry{Tag: tag, Name: name, Perm: perm.Draw(t, "perm")}), true
			}
		}
	}
	if named || rapid.Bool().Draw(t, "mask") {
		a = append(a, posixacl.Entry{Tag: posixacl.Mask, Perm: perm.Draw(t, "mask")})
	}
	slices.SortFunc(a, posixacl.Compare)
	return a
}

// sideBySide is a tree and a folder, in which the same is done.
type sideBySide struct {
	*rig
	dir   string
	root  *linuxUser
	users []*linuxUser
	paths []string // of what is in both
}

// TestACLsAsLinux does the same with a tree and with a real file system, and compares modes,
// ACLs and who may do what.
func TestACLsAsLinux(t *testing.T) {
	s := &sideBySide{root: newLinuxUser(t, -1)}
	if os.Getuid() == 0 {
		s.users = []*linuxUser{
			newLinuxUser(t, 64001, 65001), newLinuxUser(t, 64002, 65002, 65003), newLinuxUser(t, 64003, 65009),
			newLinuxUser(t, 64004, 65003, 65001), newLinuxUser(t, 64005, 65009),
		}
	} else { // who cannot be others compares what he may himself
		s.users = []*linuxUser{s.root}
	}
	top := linuxDir(t)
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		s.rig, s.dir, s.paths = newRig(t), fmt.Sprintf("%s/%d", top, n), nil
		if err := os.Mkdir(s.dir, 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		s.mkdir(t, "/d")
		if err := os.Mkdir(s.dir+"/d", 0o755); err != nil {
			t.Fatalf("%v", err)
		}
		s.paths = []string{"/d"}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			s.step(t)
		}
		for _, path := range s.paths {
			s.compare(t, path)
		}
		if err := os.RemoveAll(s.dir); err != nil {
			t.Fatalf("%v", err)
		}
	})
}

func (s *sideBySide) step(t *rapid.T) {
	path := rapid.SampledFrom(s.paths).Draw(t, "path")
	a, err := s.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	mode, mask := rapid.Uint16Range(0, 0o777).Draw(t, "mode"), rapid.Uint16Range(0, 0o777).Draw(t, "umask")
	both := func(op Op, err error, do func() error) {
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		s.must(t, op)
		s.root.run(func() { err = do() })
		if err != nil {
			t.Fatalf("%s, on this machine: %v", path, err)
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "what") {
	case 0:
		both(&OpSetAttr{Inode: a.ID, SetMode: true, Mode: mode}, nil, func() error { return unix.Chmod(s.dir+path, uint32(mode)) })
	case 1:
		if os.Getuid() != 0 {
			return
		}
		user, group := rapid.SampledFrom(linuxUIDs).Draw(t, "user"), rapid.SampledFrom(linuxGIDs).Draw(t, "group")
		uid, _ := linuxID(user)
		gid, _ := linuxID(group)
		both(&OpSetAttr{Inode: a.ID, User: user, Group: group}, nil, func() error { return unix.Chown(s.dir+path, int(uid), int(gid)) })
	case 2:
		given := drawACL(t)
		s.set(t, path, given, posixacl.XattrAccess, given)
	case 3:
		if given := drawACL(t); a.Type == TypeDir {
			s.set(t, path, given.AsDefault(), posixacl.XattrDefault, given)
		}
	default:
		if a.Type != TypeDir {
			return
		}
		name := fmt.Sprintf("%s/%d", path, len(s.paths))
		c := &Call{User: strconv.Itoa(os.Getuid()), Super: true, ForGroup: strconv.Itoa(os.Getgid()), FileLess: mask, DirLess: mask}
		if rapid.Bool().Draw(t, "dir") {
			op, err := PlanMkdir(s.tree, c, At(name), mode, false)
			both(op, err, func() error { unix.Umask(int(mask)); return unix.Mkdir(s.dir+name, uint32(mode)) })
		} else {
			op, err := PlanCreate(s.tree, c, CreateRequest{At: At(name), Mode: mode, Close: true})
			both(op, err, func() error {
				unix.Umask(int(mask))
				fd, err := unix.Open(s.dir+name, unix.O_CREAT|unix.O_EXCL|unix.O_RDONLY, uint32(mode))
				if err == nil {
					err = unix.Close(fd)
				}
				return err
			})
		}
		s.paths = append(s.paths, name)
	}
}

func (s *sideBySide) set(t *rapid.T, path string, given posixacl.ACL, attr string, value posixacl.ACL) {
	op, err := PlanSetACL(s.tree, nil, At(path), posixacl.Change{Action: posixacl.Exact, Entries: given})
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if op != nil {
		s.must(t, op)
	}
	s.root.run(func() {
		err = unix.Setxattr(s.dir+path, attr, value.EncodeLinux(linuxID, linuxID), 0)
	})
	if err != nil {
		t.Fatalf("setting %s of %s to %s: %v", attr, path, value, err)
	}
}

func (s *sideBySide) compare(t *rapid.T, path string) {
	var st unix.Stat_t
	if err := unix.Stat(s.dir+path, &st); err != nil {
		t.Fatalf("%v", err)
	}
	a, err := s.tree.Stat(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	if uint32(a.Mode) != st.Mode&0o7777 {
		t.Fatalf("%s has the mode %o, Linux has %o", path, a.Mode, st.Mode&0o7777)
	}
	list, err := s.tree.ACL(nil, At(path))
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, attr := range []string{posixacl.XattrAccess, posixacl.XattrDefault} {
		var b [4096]byte
		n, err := unix.Getxattr(s.dir+path, attr, b[:])
		if err != nil && err != unix.ENODATA { //nolint:errorlint // as the kernel says it
			t.Fatalf("%v", err)
		}
		linux, err := posixacl.DecodeLinux(b[:max(n, 0)], linuxName, linuxName)
		if err != nil {
			t.Fatalf("%v", err)
		}
		mine := list.Part(attr == posixacl.XattrDefault)
		if attr == posixacl.XattrAccess && !mine.Extended() {
			mine = nil
		}
		if !slices.Equal(mine, linux) {
			t.Fatalf("%s of %s is %s, Linux has %s", attr, path, mine, linux)
		}
	}
	dir, err := unix.Open(s.dir+path, unix.O_PATH, 0) // so that what is above does not matter
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer unix.Close(dir) //nolint:errcheck // nothing was written
	inode := s.tree.get(a.ID)
	for _, u := range s.users {
		if a.Access != nil && a.Mode&0o070 == 0 && u.call.User != a.User {
			continue // Linux does not look at an ACL with an empty mask: others' rights count then
		}
		for want := uint16(1); want < 8; want++ {
			var e unix.Errno
			u.run(func() { e = access(dir, want) })
			mine := view{s.tree, &u.call, ""}.allowed(inode, want)
			if e != 0 && e != unix.EACCES || mine != (e == 0) {
				t.Fatalf("%s, owner %s:%s, %s: user %s in %v may %s: %t, Linux says %v", path, a.User, a.Group, list, u.call.User, u.call.Groups, posixacl.Perms(uint8(want)), mine, e)
			}
		}
	}
}

// access is faccessat2(2) of what a descriptor is for.
func access(fd int, want uint16) unix.Errno {
	empty := [1]byte{}
	_, _, e := unix.RawSyscall6(unix.SYS_FACCESSAT2, uintptr(fd), uintptr(unsafe.Pointer(&empty)), uintptr(want), unix.AT_EMPTY_PATH, 0, 0)
	return e
}
