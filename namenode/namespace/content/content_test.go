package content

import (
	"slices"
	"testing"

	"github.com/leasefs/leasefs/internal/blockstore"
)

func block(seq uint64, used uint32) Block {
	return Block{Key: blockstore.Key{Term: 1, Seq: seq}, Stored: used + 4, Used: used}
}

// three has blocks of 10, 20 and 30 bytes and a tail.
func three() File {
	return File{Blocks: []Block{block(1, 10), block(2, 20), block(3, 30)}, End: 60, Tail: []byte("tail")}
}

// TestCut cuts a file everywhere: what is left has the length asked for, what was
// there before is as it was.
func TestCut(t *testing.T) {
	for length := range three().Length() {
		f := three()
		short, lost := f.Cut(length)
		sum := int64(0)
		for _, b := range short.Blocks {
			sum += int64(b.Used)
		}
		if short.Length() != length || sum != short.End || len(short.Blocks)+len(lost) != 3 {
			t.Errorf("cut to %d: %+v, lost %+v", length, short, lost)
		}
		short.Blocks = append(short.Blocks, block(9, 9))
		short.Tail = GrowTail(short.Tail, []byte("other"))
		if want := three(); !slices.Equal(f.Blocks, want.Blocks) || string(f.Tail) != "tail" {
			t.Errorf("cut to %d, and then appended to, it changes the older one: %+v", length, f)
		}
	}
}

func TestCommit(t *testing.T) {
	for name, c := range map[string]struct {
		commit Commit
		open   bool
		length int64 // afterwards; 0: refused
	}{
		"all of the tail":            {Commit{Offset: 60, Block: block(4, 4), Covered: 4}, false, 64},
		"part of the tail":           {Commit{Offset: 60, Block: block(4, 3), Covered: 3}, false, 64},
		"beyond the tail":            {Commit{Offset: 60, Block: block(4, 9), Covered: 4}, true, 69},
		"beyond the tail, closed":    {Commit{Offset: 60, Block: block(4, 9), Covered: 4}, false, 0},
		"into the tail":              {Commit{Offset: 60, Block: block(4, 9), Covered: 3}, true, 0},
		"less than it covers":        {Commit{Offset: 60, Block: block(4, 3), Covered: 4}, true, 0},
		"more than there is":         {Commit{Offset: 60, Block: block(4, 5), Covered: 5}, true, 0},
		"below zero":                 {Commit{Offset: 60, Block: block(4, 5), Covered: -1}, true, 0},
		"not at the end":             {Commit{Offset: 59, Block: block(4, 4), Covered: 4}, true, 0},
		"no key":                     {Commit{Offset: 60, Block: Block{Stored: 9, Used: 4}, Covered: 4}, true, 0},
		"more used than stored":      {Commit{Offset: 60, Block: Block{Key: block(4, 0).Key, Stored: 3, Used: 4}, Covered: 4}, true, 0},
		"the last, with the tail":    {Commit{Offset: 30, Block: block(4, 34), Covered: 4, Replace: true}, false, 64},
		"the last, but shorter":      {Commit{Offset: 30, Block: block(4, 29), Replace: true}, false, 0},
		"the last, but longer":       {Commit{Offset: 30, Block: block(4, 35), Covered: 4, Replace: true}, true, 0},
		"the last, at another place": {Commit{Offset: 10, Block: block(4, 34), Covered: 4, Replace: true}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := three()
			if err := c.commit.Check(f, c.open); (err == nil) != (c.length != 0) {
				t.Fatal(err)
			} else if err != nil {
				return
			}
			after, lost := c.commit.To(f)
			if after.Length() != c.length || !after.HasBlock(c.commit.Offset, c.commit.Block) || (len(lost) == 1) != c.commit.Replace {
				t.Fatalf("%+v, lost %+v", after, lost)
			}
		})
	}
	if err := (Commit{Block: block(1, 1), Replace: true}).Check(File{}, true); err == nil {
		t.Error("a block takes the place of none")
	}
}

func TestAppend(t *testing.T) {
	data := []byte("data")
	a := NewAppend(7, data)
	switch {
	case !a.Was(7, data), a.Was(8, data), a.Was(7, []byte("date")), a.Was(7, data[:3]), (Append{}).Was(0, nil):
		t.Error("it does not know what was appended")
	case !a.Within(11), a.Within(10), a.Within(6), Append{Offset: -1}.Within(9), !Append{}.Within(0):
		t.Error("it does not know where")
	}
	f := three()
	for offset, want := range map[int64]bool{59: false, 60: true, 61: false} {
		if f.Has(offset, f.Tail) != want {
			t.Errorf("the tail is at %d: %t", offset, !want)
		}
	}
}

func TestJoin(t *testing.T) {
	f := File{Blocks: []Block{block(7, 7)}, End: 7}.Join(three()).Join(File{})
	if f.Length() != 71 || len(f.Blocks) != 4 || !f.HasBlock(37, block(3, 30)) || string(f.Tail) != "tail" {
		t.Fatalf("%+v", f)
	}
}
