package namespace

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/namenode/namespace/tables"
)

// script runs the text tests in testdata: one command a test, the rest of its
// line paths, then key=value arguments; its input is bytes to write. Output is
// "ok", an error with its kind, or what was asked for.
type script struct {
	*rig
	t       *testing.T
	d       *datadriven.TestData
	writers map[string]Writer
	keys    map[string]Block
}

func TestScripts(t *testing.T) {
	datadriven.Walk(t, "../../testdata/namespace", func(t *testing.T, path string) {
		s := &script{rig: newRig(t), t: t, writers: make(map[string]Writer), keys: make(map[string]Block)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d = t, d
			out := s.run()
			sound(t, s.tree)
			return out
		})
		same(t, s.tree, replay(t, s.journal))
		roundTrip(t, s.tree)
	})
}

// path returns the i-th path.
func (s *script) path(i int) string {
	for _, a := range s.d.CmdArgs {
		if len(a.Vals) == 0 && strings.HasPrefix(a.Key, "/") {
			if i == 0 {
				return a.Key
			}
			i--
		}
	}
	s.t.Fatalf("%s: too few paths", s.d.Pos)
	return ""
}

// ref is what has the first path, or what that leads to.
func (s *script) ref(follow bool) Ref {
	if follow {
		return Follow(s.path(0))
	}
	return At(s.path(0))
}

func refs(paths []string) (all []Ref) {
	for _, p := range paths {
		all = append(all, At(p))
	}
	return all
}

func (s *script) paths() (all []string) {
	for _, a := range s.d.CmdArgs {
		if len(a.Vals) == 0 && strings.HasPrefix(a.Key, "/") {
			all = append(all, a.Key)
		}
	}
	return all
}

func (s *script) value(key, or string) string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key && len(a.Vals) > 0 {
			return a.Vals[0]
		}
	}
	return or
}

func (s *script) has(key string) bool { return s.d.HasArg(key) }

func (s *script) number(key string, or int64) int64 {
	v := s.value(key, "")
	if v == "" {
		return or
	}
	n, err := strconv.ParseInt(v, 0, 64)
	if err != nil {
		s.t.Fatalf("%s: %v", s.d.Pos, err)
	}
	return n
}

func (s *script) call() *Call {
	user := s.value("user", "")
	if user == "" {
		return nil
	}
	return &Call{User: user, Groups: strings.Split(s.value("groups", user), "+")}
}

func say(err error) string {
	var e *fserror.Error
	if !errors.As(err, &e) {
		return fmt.Sprintf("error: %v\n", err)
	}
	out := fmt.Sprintf("%s: %s", e.Kind, e.Error())
	if e.Kind == fserror.Held {
		out = fmt.Sprintf("%s by %s: %s", e.Kind, e.Holder.Client, e.Message)
	}
	if e.Reason != "" {
		out += fmt.Sprintf(" reason=%q", e.Reason)
	}
	return out + "\n"
}

// act applies a planned record and says what it did.
func act[T Op](s *script, isNil bool, op T, err error) string {
	if err != nil {
		return say(err)
	}
	if isNil {
		return "nothing to do\n"
	}
	res, err := s.apply(CallID{}, op)
	if err != nil {
		return say(err)
	}
	if name := s.value("as", ""); name != "" && res.Opened != nil {
		s.writers[name] = Writer{Inode: res.Inode, Epoch: res.Opened.Epoch, Token: res.Opened.Token}
	}
	out := "ok"
	for _, c := range res.Closed {
		out += fmt.Sprintf(" closed(%d %s)", c.Inode, c.Reason)
	}
	return out + "\n"
}

func (s *script) holder() Holder {
	name := s.value("as", "w")
	return Holder{User: s.value("user", "hdfs"), Client: name, Session: SessionID{name[0]}, Host: "host", PID: 1}
}

func (s *script) run() string {
	input := strings.TrimSuffix(s.d.Input, "\n")
	switch s.d.Cmd {
	case "mkdir":
		op, err := PlanMkdir(s.tree, s.call(), At(s.path(0)), uint16(s.number("mode", 0o755)), s.has("p"))
		return act(s, op == nil, op, err)
	case "create":
		op, err := PlanCreate(s.tree, s.call(), CreateRequest{
			At: s.ref(s.has("overwrite")), Mode: uint16(s.number("mode", 0o644)), DirMode: 0o755, Overwrite: s.has("overwrite"),
			Parents: s.has("p"), Close: !s.has("as"), Holder: s.holder(), Token: s.newToken(), Data: []byte(input),
		})
		return act(s, op == nil, op, err)
	case "open":
		a, err := PlanOpen(s.tree, s.call(), Follow(s.path(0)), false)
		return act(s, false, &OpOpen{Inode: a.ID, Holder: s.holder(), Token: s.newToken()}, err)
	case "write":
		w := s.writers[s.value("as", "w")]
		o, _ := s.tree.Stat(nil, Inode(w.Inode))
		op, _, err := PlanAppendTail(s.tree, nil, w, s.number("offset", o.Length), []byte(input), int(s.number("max", testMaxTail)))
		return act(s, op == nil, op, err)
	case "commit":
		return s.commitBlock(input)
	case "seal":
		return s.sealTail()
	case "close":
		w := s.writers[s.value("as", "w")]
		o, _ := s.tree.Stat(nil, Inode(w.Inode))
		op, err := PlanClose(s.tree, nil, w, s.number("offset", o.Length), []byte(input), s.number("length", -1), s.number("mtime", 0), testMaxTail)
		return act(s, op == nil, op, err)
	case "recover":
		a, _ := s.tree.Stat(nil, Follow(s.path(0)))
		return act(s, false, &OpRecover{Inode: a.ID, Reason: "forced"}, nil)
	case "rename":
		op, err := PlanRename(s.tree, s.call(), At(s.path(0)), At(s.path(1)), s.has("overwrite"), false)
		return act(s, op == nil, op, err)
	case "rm":
		return s.remove()
	case "ln":
		op, err := PlanSymlink(s.tree, s.call(), At(s.path(0)), s.value("to", ""), s.has("p"))
		return act(s, op == nil, op, err)
	case "setattr":
		set := OpSetAttr{SetMode: s.has("mode"), Mode: uint16(s.number("mode", 0)), User: s.value("owner", ""), Group: s.value("group", "")}
		set.SetMTime, set.MTime = s.has("mtime"), s.number("mtime", 0)
		op, err := PlanSetAttr(s.tree, s.call(), At(s.path(0)), set)
		return act(s, op == nil, op, err)
	case "truncate":
		op, err := PlanTruncate(s.tree, s.call(), Follow(s.path(0)), s.number("length", 0))
		return act(s, op == nil, op, err)
	case "concat":
		op, err := PlanConcat(s.tree, s.call(), Follow(s.path(0)), refs(s.paths()[1:]))
		return act(s, op == nil, op, err)
	case "reclaim":
		return act(s, false, &OpReclaim{Limit: uint32(s.number("limit", 10))}, nil)
	case "tombstone":
		b := s.keys[s.value("block", "")]
		op := PlanTombstone(s.tree, []tables.StoredBlock{{Key: b.Key, Stored: b.Stored}})
		return act(s, op == nil, op, nil)
	case "collect":
		return act(s, false, &OpCollected{Keys: s.tree.Garbage().Oldest(s.now, 100, math.MaxInt64)}, nil)
	}
	return s.show()
}

func (s *script) remove() string {
	c := s.call()
	only := map[string]Type{"": 0, "file": TypeFile, "dir": TypeDir, "link": TypeSymlink}[s.value("only", "")]
	op, err := PlanDelete(s.tree, c, At(s.path(0)), s.has("r"), only)
	if err == nil && s.has("r") {
		var check RemoveCheck
		for done := false; !done && err == nil; {
			done, err = s.tree.CanRemoveAll(c, op.Inode, &check, 1)
		}
	}
	return act(s, op == nil, op, err)
}

func (s *script) commitBlock(input string) string {
	w := s.writers[s.value("as", "w")]
	v, _ := s.tree.File(nil, Inode(w.Inode))
	b, known := s.keys[s.value("block", "?")]
	if !known {
		b = s.block(input)
		s.keys[s.value("block", "?")] = b
	}
	covered := s.number("covered", int64(min(len(input), len(v.Tail))))
	crc := crcOf(input[:min(int(covered), len(input))])
	op, err := PlanCommit(s.tree, nil, w, s.number("offset", v.Attr.Length-v.Attr.TailLength), b, covered, crc)
	return act(s, op == nil, op, err)
}

func (s *script) sealTail() string {
	a, _ := s.tree.Stat(nil, Follow(s.path(0)))
	v, _ := s.tree.File(nil, Inode(a.ID))
	data, offset := string(v.Tail), a.Length-a.TailLength
	var last *Block
	if n := len(v.Blocks); n > 0 {
		last = &v.Blocks[n-1]
		if s.has("merge") {
			data = string(s.store[last.Key][:last.Used]) + data
			offset -= int64(last.Used)
		}
	}
	op, err := PlanMerge(s.tree, a.ID, s.block(data), offset, a.TailLength, s.has("merge"), last)
	return act(s, op == nil, op, err)
}

// show are the commands that change nothing.
func (s *script) show() string {
	var b strings.Builder
	switch s.d.Cmd {
	case "stat":
		a, err := s.tree.Stat(s.call(), s.ref(s.has("follow")))
		if err != nil {
			return say(err)
		}
		b.WriteString(line(s.path(0), a))
	case "ls":
		_, entries, next, err := s.tree.List(s.call(), Follow(s.path(0)), s.value("after", ""), int(s.number("limit", 0)))
		if err != nil {
			return say(err)
		}
		for _, a := range entries {
			b.WriteString(line(a.Name, a))
		}
		if next != "" {
			b.WriteString("more\n")
		}
	case "cat":
		v, err := s.tree.File(s.call(), Follow(s.path(0)))
		if err != nil {
			return say(err)
		}
		fmt.Fprintf(&b, "%q in %d blocks and a tail of %d\n", s.content(s.t, s.tree, v.Attr.ID), len(v.Blocks), len(v.Tail))
	case "check-writer":
		if err := s.tree.CheckWriter(nil, s.writers[s.value("as", "w")]); err != nil {
			return say(err)
		}
		return "ok\n"
	case "dump":
		err := s.tree.Walk(RootID, func(path []byte, a Attr) error {
			b.WriteString(line(string(path), a))
			return nil
		})
		if err != nil {
			return say(err)
		}
	case "counts":
		c := s.tree.Counts()
		fmt.Fprintf(&b, "inodes=%d files=%d dirs=%d links=%d blocks=%d open=%d stored=%d garbage=%d detached=%d\n",
			c.Inodes, c.Files, c.Dirs, c.Symlinks, c.Blocks, c.Open, c.StoredBytes, c.Garbage, c.Detached)
	case "garbage":
		for _, k := range s.tree.Garbage().Oldest(s.now, 100, math.MaxInt64) {
			fmt.Fprintf(&b, "%d.%d\n", k.Term, k.Seq)
		}
	default:
		s.t.Fatalf("%s: unknown command %s", s.d.Pos, s.d.Cmd)
	}
	if b.Len() == 0 {
		return "nothing\n"
	}
	return b.String()
}

// line is one inode as a script shows it.
func line(path string, a Attr) string {
	if len(path) > 60 {
		path = path[:57] + "..."
	}
	s := fmt.Sprintf("%s %04o %s:%s", path, a.Mode, a.User, a.Group)
	switch a.Type {
	case TypeDir:
		s += fmt.Sprintf(" dir entries=%d", a.Entries)
	case TypeSymlink:
		s += " -> " + a.LinkTarget
	case TypeFile:
		s += fmt.Sprintf(" file length=%d", a.Length)
	}
	if a.Open != nil {
		s += " open by " + a.Open.Holder.Client
	}
	return s + "\n"
}
