package scenarios_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env"
)

// commit commits a transaction that has to succeed.
func commit(t *testing.T, tx *client.Tx) uint64 {
	t.Helper()
	txid, err := tx.Commit(t.Context())
	must(t, err)
	return txid
}

// refusedTx commits a transaction that has to fail with an error that contains all words.
func refusedTx(t *testing.T, tx *client.Tx, kind fserror.Kind, words ...string) {
	t.Helper()
	_, err := tx.Commit(t.Context())
	wantKind(t, err, kind)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}

// Each compare holds, or says what was found, and then nothing was done.
func TestTxCompares(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	fs := n.Client(t)
	ctx := t.Context()
	must(t, fs.WriteFile(ctx, "/f", []byte("12345")))
	must(t, fs.Symlink(ctx, "/f", "/link"))
	must(t, fs.Xattrs("/f").Set(ctx, "user.a", []byte("v"), client.XattrAny))
	w := create(t, fs, "/open")
	inode := stat(t, fs, "/f").Inode
	lease, err := fs.Leases().Grant(ctx, time.Hour, 0)
	must(t, err)
	ended, err := fs.Leases().Grant(ctx, time.Hour, 0)
	must(t, err)
	must(t, fs.Leases().Revoke(ctx, ended.ID))
	for i, c := range []struct {
		holds, fails *client.Tx
		path, found  string
	}{
		{client.NewTx(fs).IfExists("/f"), client.NewTx(fs).IfExists("/none"), "/none", "there is nothing"},
		{client.NewTx(fs).IfMissing("/none/below"), client.NewTx(fs).IfMissing("/link"), "/link", "there is something"},
		{client.NewTx(fs).IfMissing("/f/below"), client.NewTx(fs).IfExists("/f/below"), "/f/below", "there is nothing"},
		{client.NewTx(fs).IfInode("/link", inode), client.NewTx(fs).IfInode("/f", inode+1), "/f", fmt.Sprintf("it is inode %d, not %d", inode, inode+1)},
		{client.NewTx(fs).IfLength("/f", 5), client.NewTx(fs).IfLength("/f", 6), "/f", "it has 5 bytes, not 6"},
		{client.NewTx(fs).IfXattr("/f", "user.a", "v"), client.NewTx(fs).IfXattr("/f", "user.a", "w"), "/f", `"user.a" has another value`},
		{client.NewTx(fs).IfXattr("/link", "user.a", "v"), client.NewTx(fs).IfXattr("/f", "user.b", ""), "/f", `no extended attribute "user.b"`},
		{client.NewTx(fs).IfEpoch("/open", w.Token()), client.NewTx(fs).IfEpoch("/open", w.Token()+1), "/open", fmt.Sprintf("under epoch %d, not", w.Token())},
		{client.NewTx(fs).IfLease(lease.ID), client.NewTx(fs).IfLease(ended.ID), "", "no lease " + ended.ID.String()},
		{client.NewTx(fs).IfExists("/f"), client.NewTx(fs).IfEpoch("/f", 1), "/f", "not open for write"},
		{client.NewTx(fs).IfExists("/f"), client.NewTx(fs).IfLength("/", 0), "/", "no file"},
	} {
		made := fmt.Sprintf("/made%d", i)
		commit(t, c.holds.Create(made, nil))
		stat(t, fs, made)
		not := fmt.Sprintf("/not%d", i)
		_, err := client.NewTx(fs).Commit(ctx)
		wantKind(t, err, fserror.InvalidArgument) // nothing to do
		refusedTx(t, c.fails.Create(not, nil), fserror.CompareFailed, "compare 1: ", c.path, c.found)
		gone(t, fs, not)
	}
	refusedTx(t, client.NewTx(fs).IfExists("/f").IfExists("/").IfExists("/none").Remove("/f"), fserror.CompareFailed, "compare 3: ")
	wantSound(t, fs)
}

// All operations happen under one number, in order, and another client's cache shows
// none of them late.
func TestTxOperations(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	fs := n.Client(t)
	cached := n.Client(t, func(c *client.Config) { c.Client, c.Cache = "reader", true })
	ctx := t.Context()
	must(t, fs.MkdirAll(ctx, "/d/empty", 0o755))
	must(t, fs.WriteFile(ctx, "/d/old", []byte("old"), client.WithMode(0o640)))
	must(t, fs.WriteFile(ctx, "/d/from", []byte("moved")))
	must(t, fs.WriteFile(ctx, "/d/leased", nil))
	must(t, fs.WriteFile(ctx, "/other", nil))
	lease, err := fs.Leases().Grant(ctx, time.Hour, 0)
	must(t, err)
	for _, p := range []string{"/d/old", "/d/from", "/d/leased", "/d/empty"} {
		stat(t, cached, p)
	}
	_, err = cached.ReadDir(ctx, "/d")
	must(t, err)
	events := watch(t, fs, "/d", client.WatchOptions{Recursive: true})
	txid := commit(t, client.NewTx(fs).
		Create("/d/new", []byte("content"), client.WithMode(0o600), client.WithLease(lease.ID), client.WithXattrs([]client.Xattr{{Name: "user.a", Value: []byte("v")}})).
		Write("/d/old", []byte("new")).
		Mkdir("/d/made", 0o711, false).
		Rename("/d/from", "/d/to", false).
		Remove("/d/empty").
		Attach(lease.ID, "/d/leased").
		SetXattr("/other", "user.o", "o"))
	for p, text := range map[string]string{"/d/new": "content", "/d/old": "new", "/d/to": "moved"} {
		wantContent(t, cached, p, text)
	}
	for _, p := range []string{"/d/from", "/d/empty"} {
		gone(t, cached, p)
	}
	if i := stat(t, cached, "/d/new"); i.Mode() != 0o600 || i.Lease != lease.ID || i.Xattrs != 1 {
		t.Errorf("%+v", i)
	}
	if i := stat(t, cached, "/d/old"); i.Mode() != 0o640 {
		t.Errorf("what is replaced hands its mode on: %v", i.Mode())
	}
	if i := stat(t, cached, "/d/leased"); i.Lease != lease.ID {
		t.Errorf("%+v", i)
	}
	for _, e := range wantEvents(t, events,
		"create /d/new", "attr /d/new", "delete /d/old", "create /d/old", "create /d/made/", "rename /d/from -> /d/to", "delete /d/empty/", "lease /d/leased") {
		if e.TxID != txid {
			t.Errorf("%s has number %d, not %d", line(e), e.TxID, txid)
		}
	}
	n.Restart(t)
	fs = n.Client(t)
	wantContent(t, fs, "/d/to", "moved")
	wantSound(t, fs)
}

// Nothing is done if one operation cannot be, whoever asks and for whatever reason.
func TestTxRefusals(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	root := n.Client(t)
	user := n.Client(t, func(c *client.Config) { c.User, c.Client = "alice", "A" })
	ctx := t.Context()
	must(t, root.MkdirAll(ctx, "/closed/d", 0o700))
	must(t, root.Mkdir(ctx, "/open", 0o700))
	must(t, root.Chown(ctx, "/open", "alice", ""))
	must(t, root.WriteFile(ctx, "/root's", []byte("x"), client.WithMode(0o600)))
	must(t, user.WriteFile(ctx, "/open/f", []byte("x")))
	held := create(t, n.Client(t, func(c *client.Config) { c.User, c.Client = "alice", "B" }), "/open/held")
	defer func() { _ = held.Abort() }()
	lease, err := root.Leases().Grant(ctx, time.Hour, 0)
	must(t, err)
	large := make([]byte, user.Info().MaxWholeFile/2+1)
	many, compares := client.NewTx(user), client.NewTx(user).Create("/open/x", nil)
	for i := range 65 {
		many.Create(fmt.Sprintf("/open/m%d", i), nil)
		compares.IfExists("/open")
	}
	first := func() *client.Tx { return client.NewTx(user).Create("/open/first", []byte("1")) }
	for name, c := range map[string]struct {
		tx   *client.Tx
		kind fserror.Kind
		says string
	}{
		"no permission to create":  {first().Create("/closed/x", nil), fserror.Permission, "operation 2: "},
		"no permission to replace": {first().Write("/root's", nil), fserror.Permission, "operation 2: "},
		"no permission to delete":  {first().Remove("/root's"), fserror.Permission, "operation 2: "},
		"no permission to move":    {first().Rename("/open/f", "/closed/f", false), fserror.Permission, "operation 2: "},
		"no permission to attach":  {first().Attach(lease.ID, "/open/f"), fserror.Permission, "operation 2: "},
		"another's lease":          {first().Create("/open/g", nil, client.WithLease(lease.ID)), fserror.Permission, "operation 2: "},
		"no permission to set":     {first().SetXattr("/root's", "user.a", "v"), fserror.Permission, "operation 2: "},
		"no permission to compare": {first().IfExists("/closed/d"), fserror.Permission, "compare 1: "},
		"no permission to read":    {first().IfXattr("/root's", "user.a", "v"), fserror.Permission, "compare 1: "},
		"taken":                    {first().Create("/open/f", nil), fserror.Exists, "operation 2: "},
		"held":                     {first().Write("/open/held", nil), fserror.Held, "operation 2: "},
		"missing":                  {first().Remove("/open/none"), fserror.NotFound, "operation 2: "},
		"not empty":                {client.NewTx(root).Create("/first", nil).Remove("/closed"), fserror.NotEmpty, "operation 2: "},
		"a bad attribute":          {first().SetXattr("/open/f", "trusted.a", "v"), fserror.Unsupported, "operation 2: "},
		"attributes of no maker":   {first().Create("/open/g", nil, client.WithXattrs([]client.Xattr{{Name: "system.a"}})), fserror.Unsupported, "operation 2: "},
		"the same path":            {first().Remove("/open/first"), fserror.InvalidArgument, "operation 1 touches /open/first"},
		"below":                    {first().SetXattr("/open", "user.a", "v"), fserror.InvalidArgument, "operation 1 touches /open/first"},
		"above":                    {client.NewTx(user).Mkdir("/open/d", 0o755, false).Create("/open/d/f", nil), fserror.InvalidArgument, "operation 1 touches /open/d"},
		"everything is below /":    {client.NewTx(root).SetXattr("/", "user.a", "v").Remove("/root's"), fserror.InvalidArgument, "operation 1 touches /"},
		"a rename onto another's":  {first().Rename("/open/f", "/open/first", true), fserror.InvalidArgument, "operation 1 touches"},
		"a rename into itself":     {client.NewTx(user).Rename("/open", "/open/x", false), fserror.InvalidArgument, "operation 1 touches /open"},
		"too large":                {client.NewTx(user).Create("/open/l", large).Create("/open/m", large), fserror.TooLarge, ""},
		"too many":                 {many, fserror.InvalidArgument, "1 to 64 operations"},
		"too many compares":        {compares, fserror.InvalidArgument, "at most 64 compares"},
		"a relative path":          {first().IfExists("f"), fserror.InvalidPath, ""},
	} {
		before := stat(t, root, "/open").ModTime()
		_, err := c.tx.Commit(ctx)
		if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, should be of kind %v and say %q", name, err, c.kind, c.says)
		}
		if _, err := root.Stat(ctx, "/open/first"); !errors.Is(err, fserror.NotFound) || !stat(t, root, "/open").ModTime().Equal(before) {
			t.Errorf("%s: something was done: %v", name, err)
		}
	}
	// Two paths may lead to one name, by a link: that is seen when the second is planned.
	must(t, root.Symlink(ctx, "/open", "/link"))
	refusedTx(t, first().Create("/link/first", nil), fserror.Exists, "operation 2: ")
	gone(t, root, "/open/first")
	commit(t, first())
	if f := stat(t, root, "/open/first"); f.User != "alice" {
		t.Errorf("it is %s's", f.User)
	}
	wantSound(t, root)
}

// A leader that has lost its lock to another writes nothing more, however late it asks.
func TestTxOfALostLeader(t *testing.T) {
	t.Parallel()
	n := env.Start(t)
	a, b := n.Client(t), n.Client(t, func(c *client.Config) { c.Client = "B" })
	ctx := t.Context()
	old := create(t, a, "/leader")
	lead := func(fs *client.FS, w *client.Writer, text string) *client.Tx {
		return client.NewTx(fs).IfEpoch("/leader", w.Token()).Write("/state", []byte(text)).Write("/state.log", []byte(text))
	}
	commit(t, lead(a, old, "a"))
	w := create(t, b, "/leader", client.WithOverwrite(), client.WithSteal())
	commit(t, lead(b, w, "b"))
	refusedTx(t, lead(a, old, "late"), fserror.CompareFailed, "compare 1: ")
	wantContent(t, b, "/state", "b")
	must(t, w.CloseContext(ctx))
	refusedTx(t, lead(b, w, "closed"), fserror.CompareFailed, "not open for write")
}
