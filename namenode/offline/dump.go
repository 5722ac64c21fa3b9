package offline

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/journal"
	localjournal "github.com/leasefs/leasefs/internal/journal/local"
	"github.com/leasefs/leasefs/internal/vfs"
	"github.com/leasefs/leasefs/namenode/datadir"
	"github.com/leasefs/leasefs/namenode/namespace"
	"github.com/leasefs/leasefs/namenode/record"
)

// JournalReport is what VerifyJournal found.
type JournalReport = localjournal.Report

// journalPath takes a data folder or the journal folder in it.
func journalPath(fsys vfs.FS, dir string) (string, error) {
	if _, err := fsys.Stat(filepath.Join(dir, datadir.JournalDir)); err == nil {
		return filepath.Join(dir, datadir.JournalDir), nil
	}
	if _, err := fsys.Stat(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fserror.New(fserror.NotFound, "", dir, "no such folder; give a namenode's data folder")
		}
		return "", err
	}
	return dir, nil
}

// VerifyJournal checks a journal that no namenode has open: every batch,
// checksum and number, and that every record can be decoded. It changes
// nothing.
func VerifyJournal(ctx context.Context, fsys vfs.FS, dir string) (JournalReport, error) {
	path, err := journalPath(fsys, dir)
	if err != nil {
		return JournalReport{}, err
	}
	rep, err := localjournal.Verify(ctx, fsys, path)
	if err != nil {
		return rep, journal.Damaged(err, dir)
	}
	err = localjournal.Read(ctx, fsys, path, 0, func(segment string, offset int64, _ uint64, r journal.Record) error {
		if _, _, _, err := record.Decode(r.Type, r.Body); err != nil {
			return &journal.DamageError{Segment: segment, Offset: offset, TxID: r.TxID, Detail: err.Error(), Remedy: "restore the folder from a backup, or use the newer program that wrote it"}
		}
		return nil
	})
	return rep, journal.Damaged(err, dir)
}

// dumped is one line of DumpJournal.
type dumped struct {
	TxID    uint64 `json:"txid"`
	Time    string `json:"time"`
	Term    uint64 `json:"term"`
	Segment string `json:"segment"`
	Offset  int64  `json:"offset"`
	Session string `json:"session,omitempty"`
	Call    uint64 `json:"call,omitempty"`
	By      any    `json:"by,omitempty"` // who asked for it
	Op      string `json:"op"`
	Fields  any    `json:"fields"`
}

// DumpJournal writes a journal as one JSON object a line. Writers' tokens are
// left out: with one, somebody could write as its owner. Bytes of files are
// shown by their number only.
func DumpJournal(ctx context.Context, fsys vfs.FS, dir string, from uint64, w io.Writer) error {
	path, err := journalPath(fsys, dir)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	err = localjournal.Read(ctx, fsys, path, from, func(segment string, offset int64, term uint64, r journal.Record) error {
		by, call, op, err := record.Decode(r.Type, r.Body)
		if err != nil {
			return fserror.Wrap(fserror.Damaged, "", "", &journal.DamageError{Segment: segment, Offset: offset, TxID: r.TxID, Detail: err.Error(), Remedy: "verify the journal, which tells more"}).Because(fserror.ReasonDamagedRecord)
		}
		d := dumped{
			TxID: r.TxID, Time: time.UnixMilli(r.Time).UTC().Format(time.RFC3339Nano), Term: term,
			Segment: filepath.Base(segment), Offset: offset, Call: call.Seq,
			Op: strings.TrimPrefix(reflect.TypeOf(op).Elem().Name(), "Op"), Fields: redact(reflect.ValueOf(op).Elem()),
		}
		if by != nil {
			d.By = map[string]string{"user": by.User, "client": by.Client, "host": by.Host}
		}
		if call.Seq != 0 {
			d.Session = hex.EncodeToString(call.Session[:])
		}
		return enc.Encode(d)
	})
	return journal.Damaged(err, dir)
}

// redact turns a record into what may be shown: no tokens, ids in hexadecimal,
// lengths instead of bytes, and nothing that is empty.
func redact(v reflect.Value) map[string]any {
	out := map[string]any{}
	for i := range v.NumField() {
		f, name := v.Field(i), v.Type().Field(i).Name
		if f.IsZero() {
			continue
		}
		switch x := f.Interface().(type) {
		case namespace.Token:
			out[name] = "redacted"
		case namespace.Holder:
			out[name] = map[string]any{"user": x.User, "client": x.Client, "session": hex.EncodeToString(x.Session[:]), "host": x.Host, "pid": x.PID}
		case [16]byte:
			out[name] = fmt.Sprintf("%x", x)
		case []byte:
			out[name+"Bytes"] = len(x)
		default:
			out[name] = x
		}
	}
	return out
}

// typeName is a type as stat shows it.
func typeName(t namespace.Type) string {
	switch t {
	case namespace.TypeDir:
		return "directory"
	case namespace.TypeSymlink:
		return "symlink"
	}
	return "file"
}

// DumpImage writes the tree in an image as one JSON object an inode, the way
// down from the root.
func DumpImage(fsys vfs.FS, name string, w io.Writer) error {
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return fserror.New(fserror.NotFound, "", name, "no such file; images are in the folder %s of a namenode's data folder", datadir.ImageDir)
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	t, err := namespace.ReadImage(f)
	if err != nil {
		return fserror.Wrap(fserror.Damaged, "", name, err)
	}
	enc := json.NewEncoder(w)
	last, _ := t.Last()
	if err := enc.Encode(map[string]any{"txid": last, "term": t.Term(), "namespace": fmt.Sprintf("%x", t.NamespaceID()), "counts": t.Counts()}); err != nil {
		return err
	}
	return t.Walk(namespace.RootID, func(path []byte, a namespace.Attr) error {
		line := map[string]any{
			"path": string(path), "inode": a.ID, "type": typeName(a.Type), "mode": fmt.Sprintf("%04o", a.Mode), "user": a.User, "group": a.Group,
			"mtime": a.MTime, "length": a.Length, "blocks": a.Blocks, "tail": a.TailLength,
		}
		if a.LinkTarget != "" {
			line["link_target"] = a.LinkTarget
		}
		if a.Open != nil {
			line["holder"], line["epoch"] = a.Open.Holder.Client, a.Open.Epoch
		}
		return enc.Encode(line)
	})
}
