package data_test

import (
	"net"
	"testing"

	"github.com/leasefs/leasefs/gateway/hdfs/data"
	pb "github.com/leasefs/leasefs/gateway/hdfs/hadoop"
)

// full is how many bytes a full packet of Java's client has.
const full = 126 * 512

// together sends packets one behind the other. It takes their lengths.
func (w *wire) together(all []byte, lengths ...int) {
	w.t.Helper()
	var b []byte
	at := 0
	for _, n := range lengths {
		b = append(b, w.packet(int64(at), all[at:at+n], false, false)...)
		at += n
	}
	if _, err := w.Write(b); err != nil {
		w.t.Fatal(err)
	}
}

// TestFlushBesideAWriter: a packet that is not full is durable when it is acknowledged, though the next
// one is there already: one thread may wait for a flush while another writes on.
func TestFlushBesideAWriter(t *testing.T) {
	r := start(t)
	for path, lengths := range map[string][]int{
		"/first":           {40_000, full},
		"/first, aligned":  {80 * 512, full},
		"/later":           {full, 40_000, full},
		"/later, aligned":  {full, 125 * 512, full},
		"/large":           {200 * 512, full},
		"/large, and less": {300 * 512, 200 * 512, full},
	} {
		_, b := r.create("c", path, 128<<20)
		w := r.writing(b)
		flushed := 0
		for _, n := range lengths[:len(lengths)-1] {
			flushed += n
		}
		w.together(random(flushed+full, 1), lengths...)
		for n := range lengths[:len(lengths)-1] {
			w.acked(int64(n), pb.Status_SUCCESS)
		}
		if i, err := r.fs.Stat(t.Context(), path); err != nil || i.Length < int64(flushed) {
			t.Errorf("%s has %d bytes when a flush of %d has returned: %v", path, i.Length, flushed, err)
		}
		_ = w.Close()
	}
}

// TestFullPackets: packets as the clients make them when they do not flush are told from those that they
// flush.
func TestFullPackets(t *testing.T) {
	for _, c := range []struct {
		what       string
		per        int
		sums       bool
		n, longest int
		want       bool
	}{
		{"Java and Rust", 512, true, full, 0, true},
		{"Java, later", 512, true, full, full, true},
		{"Java, a chunk less", 512, true, full - 512, full, false},
		{"Java, not aligned", 512, true, full - 1, full, false},
		{"Java without checksums", 512, false, 127 * 512, 0, true},
		{"Java, 4096 bytes per checksum", 4096, true, 15 * 4096, 0, true},
		{"Java, 128 KiB per checksum", 128 << 10, true, 128 << 10, 0, true},
		{"Java, packets of 1 MiB", 512, true, 2032 * 512, 2032 * 512, true},
		{"Java, the first of those", 512, true, 2032 * 512, 0, false},
		{"Java, a flush among those", 512, true, full, 2032 * 512, false},
		{"Java, packets of 32 KiB", 512, true, 63 * 512, 63 * 512, false},
		{"Go", 512, true, 64 << 10, 0, true},
		{"Go, a flush", 512, true, 64<<10 - 512, 64 << 10, false},
	} {
		if got := data.IsFull(c.per, c.sums, c.n, c.longest); got != c.want {
			t.Errorf("%s: a packet of %d bytes is full: %v", c.what, c.n, got)
		}
	}
}

// TestConnectionEndsEarly: what has arrived by a connection that ends before its block does is made
// durable, and was not acknowledged as the last that came unless it is.
func TestConnectionEndsEarly(t *testing.T) {
	r := start(t)
	all := random(2*full, 1)

	_, b := r.create("c", "/gone", 128<<20)
	w := r.writing(b)
	w.together(all, full, full)
	w.CloseWrite()
	w.acked(0, pb.Status_SUCCESS)
	w.acked(1, pb.Status_SUCCESS)
	r.holds("/gone", all)

	_, b = r.create("c", "/garbled", 128<<20)
	w = r.writing(b)
	good, bad := w.packet(0, all[:full], false, false), w.packet(full, all[full:], false, false)
	bad[len(bad)-1] ^= 1
	if _, err := w.Write(append(good, bad...)); err != nil {
		t.Fatal(err)
	}
	w.acked(0, pb.Status_SUCCESS)
	w.acked(1, pb.Status_ERROR_CHECKSUM)
	w.ends()
	r.holds("/garbled", all[:full])
}

// TestTakenAwayWhileItWaits: a packet that waits to be made durable when the file is taken from its
// connection is not acknowledged.
func TestTakenAwayWhileItWaits(t *testing.T) {
	r := start(t)
	_, b := r.create("c", "/f", 128<<20)
	p := r.pipe(b)
	defer p.Close()
	end, err := p.Write(0, random(full, 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.files.UpdateBlockForPipeline(t.Context(), r.u, "c", b); err != nil {
		t.Fatal(err)
	}
	m, err := data.Acknowledged(p, end)
	if err == nil || len(m.GetReply()) != 1 || m.GetReply()[0] == pb.Status_SUCCESS {
		t.Errorf("acknowledged: %v, %v", m, err)
	}
}

// heardConn tells when something has been read from it.
type heardConn struct {
	net.Conn
	heard chan<- struct{}
}

func (c heardConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.heard <- struct{}{}
	}
	return n, err
}

type hearing struct {
	net.Listener
	heard chan struct{}
}

func (l hearing) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return heardConn{c, l.heard}, err
}

// TestConnectionsWithoutATokenMakeRoom: connections that have begun a request, and shown no token, keep
// nobody from writing.
func TestConnectionsWithoutATokenMakeRoom(t *testing.T) {
	const most = 8
	heard := make(chan struct{}, 1000)
	r := start(t, func(c *data.Config) { c.Conns, c.Listener = most, hearing{c.Listener, heard} })
	_, b := r.create("c", "/f", 1<<20)
	for range most {
		if _, err := r.dial().Write([]byte{0, 28, 80}); err != nil {
			t.Fatal(err)
		}
		<-heard
	}
	w := r.writing(b)
	w.put(0, []byte("hello"))
	r.holds("/f", []byte("hello"))
}
