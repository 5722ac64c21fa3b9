package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	native "github.com/colinmarc/hdfs/v2"
)

// anyWriter is a program that appends to a file, by one of the ways there are.
type anyWriter struct {
	// open opens the file and makes a line durable; more makes another one durable, done closes the file.
	open func(line string) (more func(line string) error, done func() error, err error)
	// held tells whether an error of open says that another writes the file.
	held func(err error) bool
}

// appenders are writers of /f, by their kinds.
func (b *beside) appenders(ctx context.Context) map[string]anyWriter {
	b.t.Helper()
	c, err := native.NewClient(native.ClientOptions{Addresses: []string{b.HDFS}, User: "root"})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = c.Close() })
	m := b.mount(ctx)
	web := func(url, body string) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		resp, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = errors.New(string(answer))
		}
		return err
	}
	says := func(class string) func(error) bool {
		return func(err error) bool { return strings.Contains(fmt.Sprint(err), class) }
	}
	return map[string]anyWriter{
		"a client of hdfs://": {
			func(line string) (func(string) error, func() error, error) {
				w, err := c.Append("/f")
				if err != nil {
					return nil, nil, err
				}
				more := func(line string) error {
					_, err := w.Write([]byte(line))
					return errors.Join(err, w.Flush())
				}
				return more, w.Close, more(line)
			},
			says("AlreadyBeingCreatedException"),
		},
		"a client of WebHDFS": {
			func(line string) (func(string) error, func() error, error) {
				at := "http://" + b.WebHDFS + "/webhdfs/v1/f?op=APPEND&user.name=root"
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, at, http.NoBody)
				if err != nil {
					return nil, nil, err
				}
				resp, err := http.DefaultTransport.RoundTrip(r)
				if err != nil {
					return nil, nil, err
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusTemporaryRedirect {
					return nil, nil, errors.Join(err, errors.New(string(body)))
				}
				// The line comes with the end of the body; until then the file is this client's.
				to := resp.Header.Get("Location")
				return func(line string) error { return web(to, line) }, func() error { return web(to, line) }, nil
			},
			says("AlreadyBeingCreatedException"),
		},
		"leasefs append": {
			func(line string) (func(string) error, func() error, error) {
				p := b.begin(ctx, nil, "append", "--flush", "line", "--ack", "/f")
				more := func(line string) error {
					before := p.acked()
					_, err := io.WriteString(p.stdin, line)
					eventually(ctx, b.t, "leasefs append has acknowledged more, or ended", func() bool { return p.ended() || err == nil && p.acked() > before })
					if p.ended() {
						err = fmt.Errorf("exit code %d: %s", p.wait(ctx), p.err)
					}
					return err
				}
				done := func() error {
					if !p.ended() {
						p.eof()
					}
					if code := p.wait(ctx); code != 0 {
						return fmt.Errorf("exit code %d: %s", code, p.err)
					}
					return nil
				}
				return more, done, more(line)
			},
			says("exit code 5"),
		},
		"a mount": {
			func(line string) (func(string) error, func() error, error) {
				f, err := os.OpenFile(m.path("f"), os.O_WRONLY|os.O_APPEND, 0)
				if err != nil {
					return nil, nil, err
				}
				more := func(line string) error {
					_, err := f.WriteString(line)
					return errors.Join(err, f.Sync())
				}
				return more, f.Close, more(line)
			},
			func(err error) bool { return errors.Is(err, syscall.EBUSY) },
		},
	}
}

// TestWritersOfAllKinds: while one appends to a file, each other kind of client is refused in its own
// words, and gets the file when that one is done. One whose lease was recovered adds nothing more.
func TestWritersOfAllKinds(t *testing.T) {
	besideOthers(t)
	ctx := deadline(t, 2*time.Minute)
	n := startBeside(ctx, t)
	n.write(ctx, "", "create", "/f")
	want := ""
	all := n.appenders(ctx)
	for name, w := range all {
		line := "by " + name + "\n"
		_, done, err := w.open(line)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for other, o := range all {
			if other == name {
				continue
			}
			if _, _, err := o.open("must not be there\n"); err == nil || !o.held(err) {
				t.Errorf("%s while %s writes: %v", other, name, err)
			}
		}
		if err := done(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want += line; n.run(ctx, "cat", "/f") != want {
			t.Fatalf("after %s: %q, want %q", name, n.run(ctx, "cat", "/f"), want)
		}
	}
	for name, w := range all {
		line := "again by " + name + "\n"
		more, done, err := w.open(line)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if name != "a client of WebHDFS" { // its line has not come
			want += line
			// The client of hdfs:// does not wait for its flush.
			eventually(ctx, t, "what "+name+" has flushed is there", func() bool { return n.run(ctx, "cat", "/f") == want })
		}
		if code, body := webhdfs(ctx, t, http.MethodPut, "http://"+n.WebHDFS+"/webhdfs/v1/f?op=RECOVERLEASE&user.name=root"); code != http.StatusOK || !strings.Contains(body, "true") {
			t.Fatalf("recover what %s has: %d %s", name, code, body)
		}
		if err := errors.Join(more("must not be there\n"), done()); err == nil {
			t.Errorf("%s did not learn that its file was recovered", name)
		}
		if got := n.run(ctx, "cat", "/f"); got != want {
			t.Fatalf("after %s was recovered: %q, want %q", name, got, want)
		}
	}
	n.fsck(ctx)
}
