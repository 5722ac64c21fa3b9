package webhdfs

import (
	"bytes"
	"context"
	"crypto/md5" //nolint:gosec // Hadoop's checksum of a file is made of it
	"encoding/binary"
	"hash/crc32"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/gateway/hadoop"
	"github.com/leasefs/leasefs/gateway/users"
	"github.com/leasefs/leasefs/test/env"
)

// TestChecksum: the sums are those that HDFS 3.4.1 answered for the same bytes in blocks
// of 1 MiB.
func TestChecksum(t *testing.T) {
	data := make([]byte, 3_500_000)
	for i := range data {
		data[i] = byte((i*31 + 7) % 251)
	}
	for n, want := range map[int]fileChecksum{
		0:         {"MD5-of-0MD5-of-0CRC32", "00000000000000000000000070bc8f4b72a86921468bf8e8441dce5100000000", 28},
		1:         {"MD5-of-0MD5-of-512CRC32C", "000002000000000000000000813e013932b3af234097493b41c7a5b300000000", 28},
		511:       {"MD5-of-0MD5-of-512CRC32C", "0000020000000000000000009df6dd8427d2c77d864e8d74398994c200000000", 28},
		512:       {"MD5-of-0MD5-of-512CRC32C", "00000200000000000000000034d113989d0730f0e48d4441d07b474900000000", 28},
		513:       {"MD5-of-0MD5-of-512CRC32C", "00000200000000000000000084dfc0d6beea6356c0ecd2524185e27100000000", 28},
		1 << 20:   {"MD5-of-0MD5-of-512CRC32C", "00000200000000000000000023be74a1f073a4825976dc303d54cf1600000000", 28},
		1<<20 + 1: {"MD5-of-2048MD5-of-512CRC32C", "000002000000000000000800248a3e4f5232f1fc9d2a60cf4ee844ed00000000", 28},
		3_500_000: {"MD5-of-2048MD5-of-512CRC32C", "000002000000000000000800ad473afd82f1c37631ee789400fd81b400000000", 28},
	} {
		got, err := checksum(bytes.NewReader(data[:n]), int64(n), 1<<20, func() {})
		if err != nil || got != want {
			t.Errorf("%d bytes: %v, %v, want %v", n, got, err, want)
		}
	}
	if _, err := checksum(strings.NewReader("short"), 9, 1<<20, func() {}); hadoop.ClassOf(err) != hadoop.Retriable {
		t.Errorf("a file that became shorter: %v", err)
	}
}

// hangsUp is the answer to a client who is gone when it has waited for a while.
type hangsUp struct {
	*httptest.ResponseRecorder
	gone func()
}

func (h *hangsUp) SetReadDeadline(time.Time) error { h.gone(); return nil }

// TestChecksumEndsWithItsClient: nothing is read for one who is gone.
func TestChecksumEndsWithItsClient(t *testing.T) {
	n := env.Start(t)
	s, err := Start(t.Context(), Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(t.Context()) }()
	if err := n.Client(t).WriteFile(t.Context(), "/f", make([]byte, 40<<20)); err != nil { // five blocks
		t.Fatal(err)
	}
	u, err := s.users.Get(t.Context(), users.Key{User: "root"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.users.Release(u)
	ctx, cancel := context.WithCancel(t.Context())
	w := &hangsUp{httptest.NewRecorder(), cancel}
	q := &request{
		Server: s, w: w, r: httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx), ctx: ctx, op: "GETFILECHECKSUM", path: "/f",
		user: u, fs: hadoop.FS{FS: u.FS, User: u.User, Log: s.log}, params: params{},
	}
	if err := (transfer{q}).getFileChecksum(); client.KindOf(err) != client.ErrCanceled {
		t.Errorf("%v, and %q", err, w.Body)
	}
	if n := s.streams.Used(); n != 0 {
		t.Errorf("%d places are taken", n)
	}
}

// zeros never end.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestChecksumOfManyBlocks: the sum of a file is computed in the same memory, however
// small its blocks are, and is what HDFS's buffer of all of them would have.
func TestChecksumOfManyBlocks(t *testing.T) {
	const blocks = 70_000
	crc := binary.BigEndian.AppendUint32(nil, crc32.Checksum(make([]byte, chunkSize), crc32.MakeTable(crc32.Castagnoli)))
	one := md5.Sum(crc) //nolint:gosec // Hadoop's
	buffer := append(bytes.Repeat(one[:], blocks), make([]byte, 1<<21-blocks*md5.Size)...)
	want := newChecksum(chunkSize, 1, md5.Sum(buffer), "CRC32C") //nolint:gosec // Hadoop's
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := checksum(zeros{}, blocks*chunkSize, chunkSize, func() {})
	runtime.ReadMemStats(&after)
	if err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 2<<20 {
		t.Errorf("it took %d bytes of memory", took)
	}
}

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		offset, end, length, size int64
		want                      []block
	}{
		{0, 10, 10, 4, []block{{0, 4}, {4, 4}, {8, 2}}},
		{5, 6, 10, 4, []block{{4, 4}}},
		{4, 8, 10, 4, []block{{4, 4}}},
		{10, 10, 10, 4, nil},
		{12, 10, 10, 4, nil},
		{0, 0, 0, 4, nil},
		{0, 10, 10, 1 << 62, []block{{0, 10}}},
	} {
		if got := split(c.offset, c.end, c.length, c.size); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %v", c, got)
		}
	}
	all := split(0, 1<<50, 1<<50, 1)
	if len(all) > maxLocations || all[len(all)-1].offset+all[len(all)-1].length != 1<<50 {
		t.Errorf("%d blocks of a large file", len(all))
	}
}

// TestOperations: each operation stands under one method only, in capitals; RECOVERLEASE under two.
func TestOperations(t *testing.T) {
	seen := map[string]bool{}
	for method, names := range operations {
		for name, f := range names {
			if f == nil || seen[name] && name != "RECOVERLEASE" || name != strings.ToUpper(name) {
				t.Errorf("%s %s", method, name)
			}
			seen[name] = true
			if _, got, err := find(method, params{"op": {strings.ToLower(name)}}); err != nil || got != name {
				t.Errorf("%s %s: %v", method, name, err)
			}
		}
	}
}

// TestNobodyComes: what a first request opened is closed when no second one comes, unless its client
// renews its lease.
func TestNobodyComes(t *testing.T) {
	n := env.Start(t)
	s, err := Start(t.Context(), Config{Client: client.Config{Namenodes: []string{n.Addr()}}, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	put := func(query string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, "http://"+s.Addr()+"/webhdfs/v1/f?clientname=c&user.name=root&op="+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	put("CREATE&noredirect=true")
	defer http.DefaultClient.CloseIdleConnections()
	old := func() {
		s.openings.mu.Lock()
		defer s.openings.mu.Unlock()
		for _, o := range s.openings.byID {
			o.since = time.Now().Add(-2 * claimTime)
		}
	}
	fsys := n.Client(t)
	s.openings.endOld() // it is too early
	if i, err := fsys.Stat(t.Context(), "/f"); err != nil || i.Open == nil {
		t.Fatalf("it is not open: %v, %v", i, err)
	}
	old()
	if got := put("RENEWLEASE"); got != "{\"boolean\":true}\n" {
		t.Errorf("to renew answers %q", got)
	}
	s.openings.endOld()
	if i, err := fsys.Stat(t.Context(), "/f"); err != nil || i.Open == nil {
		t.Fatalf("it is not open when its client has renewed: %v, %v", i, err)
	}
	old()
	s.openings.endOld()
	if i, err := fsys.Stat(t.Context(), "/f"); err != nil || i.Open != nil || i.Length != 0 {
		t.Errorf("it is still open: %v, %v", i, err)
	}
	if used := s.streams.Used(); used != 0 {
		t.Errorf("%d places are not given back", used)
	}
	if n, uses := s.users.InUse(); n != 2 || uses != 0 {
		t.Errorf("%d sessions, in use %d times; want that of the user and that of the client, given back", n, uses)
	}
}

// FuzzParams: no query makes the decoder panic, and what it takes it also understands
// when it is written again.
func FuzzParams(f *testing.F) {
	for _, q := range []string{
		"", "op=OPEN&offset=1&length=2", "OP=create&Overwrite=TRUE&permission=1777&blocksize=1&replication=3", "op=%zz", "a;b", "flag=CREATE,REPLACE",
		"renameoptions=OVERWRITE&modificationtime=-1", "op=A&op=B", "xattr.value=0x41&xattr.value=0sQQ==", "permission=-1", "offset=null",
		"op=RECOVERLEASE", "op=RENEWLEASE&clientname=%00", "op=renewlease&ClientName=collector&clientname=", "op=GETLEASE&clientname=null",
	} {
		f.Add(q)
	}
	f.Fuzz(func(t *testing.T, query string) {
		p, err := parseParams(query)
		if err != nil {
			if class := hadoop.ClassOf(err); class != hadoop.IllegalArgument {
				t.Fatalf("%q: %s", query, class)
			}
			return
		}
		again, err := parseParams(url.Values(p).Encode())
		if err != nil && len(query) < maxQuery/3 {
			t.Fatalf("%q: %v", query, err)
		}
		if err == nil && !reflect.DeepEqual(p, again) {
			t.Fatalf("%q: %v became %v", query, p, again)
		}
		for name := range p {
			if n, err := p.number(name, 5, 0, 9); err == nil && (n < 0 || n > 9) {
				t.Errorf("%q: %d is outside of its bounds", query, n)
			}
			if m, err := p.mode(name, 0); err == nil {
				if back, err := (params{name: {octal(m)}}).mode(name, 0); err != nil || back != m {
					t.Errorf("%q: mode %v became %v, %v", query, m, back, err)
				}
				if m&^(fs.ModePerm|fs.ModeSticky) != 0 {
					t.Errorf("%q: mode %v", query, m)
				}
			}
			_, _ = p.flag(name, false)
			_, _, _ = p.millis(name)
			if v, err := decodeValue(p.text(name)); err == nil {
				for _, how := range []string{asHex, asBase64} {
					if back, err := decodeValue(encodeValue(v, how)); err != nil || !bytes.Equal(back, v) {
						t.Errorf("%q: value %q became %q, %v", query, v, back, err)
					}
				}
			}
		}
		_, _ = p.xattrMode()
		_, _, _ = p.renameOptions()
		_, _ = p.xattrName()
		for method := range operations {
			if f, _, err := find(method, p); (f == nil) != (err != nil) {
				t.Errorf("%q: an operation and %v", query, err)
			}
		}
	})
}
