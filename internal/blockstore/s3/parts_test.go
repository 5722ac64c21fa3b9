package s3_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/test/env/s3env"
)

const partSize = 5 << 20 // the least that S3 takes

// parted is a store that puts named objects in parts, over a line.
func parted(t *testing.T, server *s3env.Server, line *s3env.Proxy, mods ...func(*s3.Config)) *s3.Store {
	t.Helper()
	return open(t, server, line.URL("parts/"+strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))), append(mods, func(c *s3.Config) { c.PartSize, c.Logger = partSize, slog.New(slog.DiscardHandler) })...)
}

func named(t *testing.T, s *s3.Store, name string, data []byte) error {
	t.Helper()
	return s.PutNamed(t.Context(), name, bytes.NewReader(data), int64(len(data)), blockstore.CRC(data))
}

func wantNamed(t *testing.T, s *s3.Store, name string, data []byte) {
	t.Helper()
	r, err := s.GetNamed(t.Context(), name, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%s: %d bytes, want %d, %v", name, len(got), len(data), err)
	}
	info, crc, err := s.StatNamed(t.Context(), name)
	if err != nil || info.Length != int64(len(data)) || crc != blockstore.CRC(data) {
		t.Errorf("%s: %+v, checksum %08x, want %d bytes and %08x, %v", name, info, crc, len(data), blockstore.CRC(data), err)
	}
}

// unfinished are the puts in parts that the server has open.
func unfinished(t *testing.T, server *s3env.Server) int {
	t.Helper()
	status, answer, err := server.Send(t.Context(), http.MethodGet, "/"+server.Bucket+"?uploads=", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("list uploads: %d %s %v", status, answer, err)
	}
	return strings.Count(string(answer), "<UploadId>")
}

// parts: objects that are too large for one PUT.
func parts(t *testing.T, server *s3env.Server) {
	data := make([]byte, 3*partSize+12345)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	isComplete := func(r *http.Request) bool {
		return r.Method == http.MethodPost && r.URL.Query().Has("uploadId")
	}
	isPart := func(r *http.Request, n int) bool {
		return r.Method == http.MethodPut && r.URL.Query().Get("partNumber") == fmt.Sprint(n)
	}
	none := func(t *testing.T, s *s3.Store, name string) {
		t.Helper()
		if _, _, err := s.StatNamed(t.Context(), name); !errors.Is(err, fserror.NotFound) {
			t.Errorf("%s: %v, want NotFound", name, err)
		}
		if n := unfinished(t, server); n != 0 {
			t.Errorf("%d unfinished", n)
		}
	}
	t.Run("WholeAndOnce", func(t *testing.T) {
		line := server.Proxy(t)
		s := parted(t, server, line)
		for _, size := range []int{partSize, partSize + 1, 2 * partSize, len(data)} {
			name := fmt.Sprint("of-", size)
			if err := named(t, s, name, data[:size]); err != nil {
				t.Fatalf("%d bytes: %v", size, err)
			}
			wantNamed(t, s, name, data[:size])
		}
		if err := named(t, s, fmt.Sprint("of-", len(data)), append([]byte{^data[0]}, data[1:]...)); !errors.Is(err, fserror.Exists) {
			t.Errorf("again, with other bytes: %v, want Exists", err)
		}
		wantNamed(t, s, fmt.Sprint("of-", len(data)), data)
		if n := unfinished(t, server); n != 0 {
			t.Errorf("%d unfinished", n)
		}
		if n := line.Count(http.MethodPut); n != 1+2+2+4+4 {
			t.Errorf("%d PUTs", n)
		}
	})
	t.Run("WrongChecksum", func(t *testing.T) {
		s := parted(t, server, server.Proxy(t))
		if err := s.PutNamed(t.Context(), "f", bytes.NewReader(data), int64(len(data)), 7); !errors.Is(err, fserror.Damaged) {
			t.Errorf("%v, want Damaged", err)
		}
		none(t, s, "f")
	})
	t.Run("OtherBytesOnTheWay", func(t *testing.T) {
		line := server.Proxy(t)
		s := parted(t, server, line, func(c *s3.Config) { c.MaxTries = 2 })
		line.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			if isPart(r, 2) {
				body = bytes.Clone(body)
				body[1000] ^= 1
			}
			return send(body)
		})
		if err := named(t, s, "f", data); !errors.Is(err, fserror.Damaged) {
			t.Errorf("%v, want Damaged", err)
		}
		none(t, s, "f")
	})
	t.Run("Trouble", func(t *testing.T) {
		line := server.Proxy(t)
		s := parted(t, server, line)
		n := 0
		line.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			switch n++; {
			case n%3 == 0:
				return s3env.Trouble()
			case n%3 == 1 && !isComplete(r) && r.Method == http.MethodPut:
				send(body)
				return nil // the answer is lost
			}
			return send(body)
		})
		if err := named(t, s, "f", data); err != nil {
			t.Error(err)
		}
		line.Set(nil)
		wantNamed(t, s, "f", data)
	})
	t.Run("LostEnd", func(t *testing.T) {
		line := server.Proxy(t)
		s := parted(t, server, line)
		lost := false
		line.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			reply := send(body)
			if isComplete(r) && !lost {
				lost = true
				return nil
			}
			return reply
		})
		if err := named(t, s, "f", data); err != nil {
			t.Error(err)
		}
		line.Set(nil)
		wantNamed(t, s, "f", data)
	})
	t.Run("GivenUp", func(t *testing.T) {
		line := server.Proxy(t)
		s := parted(t, server, line, func(c *s3.Config) { c.MaxTries = 2 })
		line.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			if isPart(r, 3) {
				return s3env.Trouble()
			}
			return send(body)
		})
		if err := named(t, s, "f", data); !errors.Is(err, fserror.Unavailable) {
			t.Errorf("%v, want Unavailable", err)
		}
		none(t, s, "f")
	})
	t.Run("LeftByACrash", func(t *testing.T) {
		line := server.Proxy(t)
		var now clock.Fake
		now.ShiftWall(time.Since(now.Wall()))
		s := parted(t, server, line, func(c *s3.Config) { c.MaxTries, c.Clock = 1, &now })
		line.Set(func(r *http.Request, body []byte, send func([]byte) *s3env.Reply) *s3env.Reply {
			if isPart(r, 2) || r.Method == http.MethodDelete {
				return nil // the process is gone
			}
			return send(body)
		})
		if err := named(t, s, "f", data); !errors.Is(err, fserror.Unavailable) {
			t.Errorf("%v, want Unavailable", err)
		}
		line.Set(nil)
		if n := unfinished(t, server); n != 1 {
			t.Fatalf("%d unfinished, want one", n)
		}
		if n, err := s.RemoveUnfinished(t.Context()); err != nil || n != 0 {
			t.Errorf("at once: %d removed, %v", n, err)
		}
		other := parted(t, server, server.Proxy(t), func(c *s3.Config) { c.Clock = &now })
		now.Advance(25 * time.Hour)
		if n, err := other.RemoveUnfinished(t.Context()); err != nil || n != 0 {
			t.Errorf("another namespace's: %d removed, %v", n, err)
		}
		if n, err := s.RemoveUnfinished(t.Context()); err != nil || n != 1 {
			t.Errorf("a day later: %d removed, %v", n, err)
		}
		none(t, s, "f")
	})
}
