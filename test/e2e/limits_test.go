package e2e_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
)

// limited starts a namenode with at most so many open files.
func limited(t *testing.T, files int) *namenode {
	t.Helper()
	n := newNamenode(t, filepath.Join(t.TempDir(), "data"))
	n.via = withFiles(files)
	n.start(deadline(t, 30*time.Second))
	return n
}

// withFiles is before a command that may have so many files open.
func withFiles(n int) []string {
	return []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$@"`, n), "sh"}
}

// connects waits until a connection is there, or is refused.
func connects(ctx context.Context, cc *grpc.ClientConn) bool {
	cc.Connect()
	for state := cc.GetState(); state == connectivity.Idle || state == connectivity.Connecting; state = cc.GetState() {
		if !cc.WaitForStateChange(ctx, state) {
			return false
		}
	}
	return cc.GetState() == connectivity.Ready
}

// descriptors is how many files a process has open.
func (p *process) descriptors() int {
	p.t.Helper()
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	return len(list)
}

// Connections that ask nothing take no descriptor that the journal needs, nor
// one that a client does, and who has something under way keeps its connection.
func TestIdleConnectionsWithFewDescriptors(t *testing.T) {
	const files, connections = 256, 400
	ctx := deadline(t, time.Minute)
	n := limited(t, files)
	writer := n.begin(ctx, nil, "append", "--create", "--ack", "/log")
	writer.feed("before\n")
	writer.acksUpTo(ctx, 7)
	for i := range connections {
		cc, err := grpc.NewClient(n.listen, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		defer cc.Close()
		connects(ctx, cc)
		if ctx.Err() != nil {
			t.Fatalf("connection %d is still %s", i, cc.GetState())
		}
	}
	for i := range connections { // and on the other port
		c, err := net.Dial("tcp", n.http)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		defer c.Close()
	}
	for i := range 4 {
		n.run(ctx, "admin", "checkpoint") // begins a segment of the journal
		n.write(ctx, fmt.Sprint(i), "create", fmt.Sprintf("/f%d", i))
	}
	if got := n.run(ctx, "cat", "/f3"); got != "3" {
		t.Errorf("read %q", got)
	}
	writer.feed("after\n")
	writer.acksUpTo(ctx, 13)
	writer.eof()
	writer.ends(ctx, 0)
	if n.ended() {
		t.Fatalf("the namenode ended: %s", tailOf(n.err.String()))
	}
	if now := n.descriptors(); now > files*3/4 {
		t.Errorf("%d of %d descriptors are in use", now, files)
	}
}
