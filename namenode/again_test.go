package namenode_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode"
	pb "github.com/leasefs/leasefs/proto/leasefs/v1"
	"github.com/leasefs/leasefs/test/env"
)

// as makes a session another user's.
func as(r *env.Raw, user string) *env.Raw {
	r.Who.User = user
	return r
}

func mkdir(t *testing.T, r *env.Raw, path string, mode uint32) {
	t.Helper()
	if _, err := r.NN.Mkdir(t.Context(), &pb.MkdirRequest{Call: r.Call(), Caller: r.Who, At: pb.At(path), HasMode: true, Mode: mode}); err != nil {
		t.Fatal(err)
	}
}

func setAttr(t *testing.T, r *env.Raw, req *pb.SetAttrRequest) error {
	t.Helper()
	req.Call, req.Caller = r.Call(), r.Who
	_, err := r.NN.SetAttr(t.Context(), req)
	return err
}

// A commit whose answer was lost is sent again: it succeeds also where nobody
// but the owner of the folder may look.
func TestACommitIsRepeatedBelowAPrivateFolder(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann := n.Raw(t, "root"), as(n.Raw(t, "ann"), "ann")
	mkdir(t, root, "/home", 0o777)
	mkdir(t, ann, "/home/ann", 0o700)
	w := ann.Create("/home/ann/f")
	b, err := ann.PutBlock(w, []byte("block"))
	if err != nil {
		t.Fatal(err)
	}
	commit := func() {
		t.Helper()
		out, err := ann.NN.Commit(t.Context(), env.CommitRequest(w, 0, b, ""))
		if err != nil || out.GetLength() != 5 || out.GetBlocksLength() != 5 {
			t.Fatalf("%v, %v", out, err)
		}
	}
	commit()
	commit()
	if err := setAttr(t, root, &pb.SetAttrRequest{At: pb.At("/home/ann"), User: "bob"}); err != nil {
		t.Fatal(err)
	}
	commit()
}

// A delete that is sent again gets its first answer, whatever there is now.
func TestARecursiveDeleteIsRepeated(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann := n.Raw(t, "root"), as(n.Raw(t, "ann"), "ann")
	mkdir(t, root, "/home", 0o777)
	mkdir(t, ann, "/home/d", 0o755)
	mkdir(t, ann, "/home/d/e", 0o755)
	req := &pb.DeleteRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/home/d"), Recursive: true}
	first, err := ann.NN.Delete(t.Context(), proto.Clone(req).(*pb.DeleteRequest))
	if err != nil {
		t.Fatal(err)
	}
	mkdir(t, root, "/home/d", 0o755)
	mkdir(t, root, "/home/d/kept", 0o755)
	second, err := ann.NN.Delete(t.Context(), req)
	if err != nil || second.GetTxid() != first.GetTxid() {
		t.Fatalf("%v, then %v, %v", first, second, err)
	}
	other := &pb.DeleteRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/home/d"), Recursive: true}
	if _, err := ann.NN.Delete(t.Context(), other); !errors.Is(err, fserror.Permission) {
		t.Fatalf("another delete: %v", err)
	}
}

// Asking whose groups the caller has may take long. A Create holds nobody up
// meanwhile.
func TestSlowGroups(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	at, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	n := env.Start(t, func(c *namenode.Config) {
		c.Groups = func(user string) []string {
			if user == "ann" && asked.Add(1) == 1 {
				close(at)
				<-goOn
			}
			return nil
		}
	})
	root, ann := n.Raw(t, "root"), as(n.Raw(t, "ann"), "ann")
	mkdir(t, root, "/d", 0o777)
	made := make(chan error, 1)
	go func() {
		_, err := ann.NN.Create(t.Context(), &pb.CreateRequest{Call: ann.Call(), Caller: ann.Who, At: pb.At("/d/f"), Cache: true})
		made <- err
	}()
	<-at
	mkdir(t, root, "/e", 0o755)
	release()
	if err := <-made; err != nil {
		t.Error(err)
	}
}

// As with touch of POSIX, who may write a file may set its mtime to now.
func TestWhoMayWriteMayTouch(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root, ann := n.Raw(t, "root"), as(n.Raw(t, "ann"), "ann")
	w := root.Create("/f")
	if err := root.Close(w, 0); err != nil {
		t.Fatal(err)
	}
	touch := func(ms int64) error {
		return setAttr(t, ann, &pb.SetAttrRequest{At: pb.At("/f"), SetMtime: true, MtimeUnixMs: ms})
	}
	if err := touch(0); !errors.Is(err, fserror.Permission) {
		t.Errorf("touch by one who may not write: %v", err)
	}
	if err := setAttr(t, root, &pb.SetAttrRequest{At: pb.At("/f"), SetMode: true, Mode: 0o666, SetMtime: true, MtimeUnixMs: 1}); err != nil {
		t.Fatal(err)
	}
	if err := touch(0); err != nil {
		t.Errorf("touch by one who may write: %v", err)
	}
	if ms := root.File("/f").GetAttr().GetMtimeUnixMs(); ms < 1e12 {
		t.Errorf("the mtime is %d", ms)
	}
	if err := touch(5); !errors.Is(err, fserror.Permission) {
		t.Errorf("another mtime than now: %v", err)
	}
}
