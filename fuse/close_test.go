package fuse_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/fuse"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
)

// looks are the ways to look at a file, or at its directory.
func (m *mounted) looks(name string) map[string]func() error {
	return map[string]func() error{
		"stat": func() error { _, err := os.Stat(m.path(name)); return err },
		"list": func() error { _, err := os.ReadDir(m.dir); return err },
		"read": func() error { _, err := os.ReadFile(m.path(name)); return err },
	}
}

// Whoever looks at a file while it is closed does not disturb that.
func TestClosesBesideLooks(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	for how, look := range m.looks("log") {
		must(t, os.RemoveAll(m.path("log")))
		m.write("log", "")
		var want strings.Builder
		meanwhile(t, func() {
			for i := range 300 {
				f := m.open("log", os.O_WRONLY|os.O_APPEND)
				line := fmt.Sprintln(i)
				_, err := io.WriteString(f, line)
				if err = errors.Join(err, f.Close()); err != nil {
					t.Errorf("line %d beside %s: %v", i, how, err)
				}
				want.WriteString(line)
			}
		}, look)
		m.reads("log", want.String())
	}
}

// A descriptor that a child inherited keeps working after its maker has closed it, whoever
// looks at the file meanwhile.
func TestInheritedDescriptorsBesideLooks(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	for how, look := range m.looks("log") {
		must(t, os.RemoveAll(m.path("log")))
		m.write("log", "")
		meanwhile(t, func() {
			for i := range 30 {
				f := m.open("log", os.O_WRONLY|os.O_APPEND)
				say(t, f, "parent\n")
				child := exec.CommandContext(t.Context(), "sh", "-c", "read go && echo child >&3 && exec 3>&-")
				child.ExtraFiles = []*os.File{f}
				var out strings.Builder
				child.Stderr = &out
				in, err := child.StdinPipe()
				must(t, err)
				must(t, child.Start())
				err = f.Close()
				_, werr := io.WriteString(in, "go\n")
				if err = errors.Join(err, werr, in.Close(), child.Wait()); err != nil {
					t.Errorf("round %d beside %s: %v %s", i, how, err, out.String())
				}
			}
		}, look)
		m.reads("log", strings.Repeat("parent\nchild\n", 30))
	}
}

// A descriptor that was given back writes only if nobody has changed the file since, also if all
// was synced before.
func TestInheritedDescriptorsAfterASync(t *testing.T) {
	r := newRig(t)
	a, b := r.mount(fuse.Options{}), r.mount(fuse.Options{})
	for _, test := range []struct{ elsewhere, want string }{{"", "parent\nchild\n"}, {"changed", "changed"}, {"another", "another"}} {
		a.write("f", "")
		f := a.open("f", os.O_WRONLY|os.O_APPEND)
		say(t, f, "parent\n")
		must(t, f.Sync())
		child := exec.CommandContext(t.Context(), "sh", "-c", "read go && echo child >&3 && exec 3>&-")
		child.ExtraFiles = []*os.File{f}
		in, err := child.StdinPipe()
		must(t, err)
		must(t, child.Start())
		must(t, f.Close())
		if test.elsewhere != "" {
			b.write("f", test.elsewhere)
		}
		_, err = io.WriteString(in, "go\n")
		must(t, errors.Join(err, in.Close()))
		if err := child.Wait(); (err == nil) != (test.elsewhere == "") {
			t.Errorf("after %q was written elsewhere: %v", test.elsewhere, err)
		}
		b.reads("f", test.want)
	}
}

// A shell in a container writes by a duplicate of the descriptor that it opened and closed. The
// mount cannot see that it has one: its descriptors have other names there.
func TestShellsInOtherMounts(t *testing.T) {
	m := newRig(t).mount(fuse.Options{})
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-ec", `mount --bind "$1" "$2"; echo more >"$2/g"; cat "$2/g"`, "sh", m.path(""), t.TempDir()).CombinedOutput()
	if err != nil || string(out) != "more\n" {
		t.Errorf("it says %q: %v", out, err)
	}
}

// Whoever reads a file while it is cut reads it, also if the cut fails.
func TestFailedCutsBesideReads(t *testing.T) {
	m := newRig(t).mount(fuse.Options{}, func(c *client.Config) {
		c.DialOptions = append(c.DialOptions, grpc.WithChainUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if a, ok := req.(*pb.AppendRequest); ok && a.GetCut() {
					a.CutLength = 1 << 40 // which is more than the file has
				}
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
	})
	w := m.open("f", os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	meanwhile(t, func() {
		for range 300 {
			say(t, w, "x")
			if err := w.Truncate(0); err == nil {
				t.Error("the file was cut")
			}
		}
	}, func() error { _, err := os.ReadFile(m.path("f")); return err })
	must(t, w.Close())
}
