// Package login keeps a person's login at an issuer of tokens (OpenID Connect) in a file,
// and renews its token before it ends. Several processes share a file: one of them renews,
// under a lock, and the others read what it got.
//
// No error and no String of this package has a secret in it.
package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Login is what a file has.
type Login struct {
	Issuer    string   `json:"issuer"`
	ClientID  string   `json:"client_id"`
	CA        string   `json:"ca,omitempty"`     // PEM file of those who sign the issuer's certificate; empty: the system's
	Access    bool     `json:"access,omitempty"` // the access token is shown, not the ID token
	Namenodes []string `json:"namenodes"`        // to whom it may be shown unless somebody names the file
	User      string   `json:"user"`             // whom the namenode took its bearer for; empty: not known

	Secret  string `json:"client_secret,omitempty"`
	Token   string `json:"token"`
	Refresh string `json:"refresh,omitempty"`

	// Received and Ends are by the clock of the machine that got the token: what the issuer's
	// clock says may be wrong here.
	Received time.Time `json:"received"`
	Ends     time.Time `json:"ends"`
}

// String tells no secret.
func (l *Login) String() string { return "a login at " + l.Issuer }

// Due is when the token is to be renewed: with a quarter of its time left.
func (l *Login) Due() time.Time { return l.Received.Add(l.Ends.Sub(l.Received) / 4 * 3) }

// Folder is where logins are of the user whose process this is.
func Folder() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fserror.New(fserror.NotFound, "login", "", "there is no folder for configuration (%v); set HOME or XDG_CONFIG_HOME, or name a file", err)
	}
	return filepath.Join(dir, "leasefs", "logins"), nil
}

// FileFor is the file for a login that is shown to these namenodes.
func FileFor(dir string, namenodes []string) string {
	sum := sha256.Sum256([]byte(strings.Join(sorted(namenodes), ",")))
	return filepath.Join(dir, hex.EncodeToString(sum[:8])+".json")
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return slices.Compact(names)
}

// maxFiles is how many logins Find looks at.
const maxFiles = 1000

// Find returns the file of a login that may be shown to all of these namenodes; empty if
// there is none. One that cannot be read is passed over.
func Find(dir string, namenodes []string) string {
	if name := FileFor(dir, namenodes); len(namenodes) > 0 {
		if _, err := os.Stat(name); err == nil {
			return name
		}
	}
	d, err := os.Open(dir) //nolint:gosec // it is the user's own
	if err != nil {
		return ""
	}
	defer func() { _ = d.Close() }()     // nothing was written
	names, _ := d.Readdirnames(maxFiles) // those that can be read
	slices.Sort(names)
	for _, name := range names {
		if !strings.HasSuffix(name, ".json") {
			continue
		}
		f, err := open(clock.System{}, filepath.Join(dir, name))
		if err == nil && !slices.ContainsFunc(namenodes, func(a string) bool { return !slices.Contains(f.Get().Namenodes, a) }) {
			return filepath.Join(dir, name)
		}
	}
	return ""
}

// Read returns the login of a file.
func Read(name string) (*Login, error) {
	f, err := open(clock.System{}, name)
	if err != nil {
		return nil, err
	}
	return f.Get(), nil
}

// open reads a file of a login.
func open(c clock.Clock, name string) (*proof.File[*Login], error) {
	return proof.Open(c, func(contents [][]byte) (*Login, error) {
		bad := func(kind fserror.Kind, why string) error { return fserror.New(kind, "read login", name, "%s", why) }
		if proof.OthersRead(name) {
			return nil, bad(fserror.Permission, "others may read it: remove it, and log in again")
		}
		return parse(contents[0], bad)
	}, name)
}

func parse(raw []byte, bad func(fserror.Kind, string) error) (*Login, error) {
	l := new(Login)
	if err := json.Unmarshal(raw, l); err != nil { // whose text may have a part of the file
		return nil, bad(fserror.InvalidArgument, "it is no login that can be read: remove it, and log in again")
	}
	switch {
	case l.Issuer == "" || l.ClientID == "" || l.Token == "":
		return nil, bad(fserror.InvalidArgument, "it has no issuer, client or token: remove it, and log in again")
	case !proof.IsToken(l.Token):
		return nil, bad(fserror.InvalidArgument, "it has no valid token: remove it, and log in again")
	}
	return l, nil
}

// room is how many bytes are set aside for a login before the issuer is asked to renew it.
const room = 64 << 10

// Draft is a file that a login is about to be written to. There is room for it already,
// so that a full disk is told before the issuer has given a new token for the old one.
type Draft struct {
	f    *os.File
	name string
}

// NewDraft makes a draft; Keep or Drop ends it. Folders are made if they are missing.
func NewDraft(name string) (*Draft, error) {
	dir := filepath.Dir(name)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, local(dir, err)
	}
	f, err := os.CreateTemp(dir, ".new-*") // of mode 600
	if err != nil {
		return nil, local(dir, err)
	}
	d := &Draft{f, name}
	if _, err = f.Write(make([]byte, room)); err == nil {
		err = f.Sync()
	}
	if err != nil {
		d.Drop()
		return nil, local(name, err)
	}
	return d, nil
}

// Drop removes the draft.
func (d *Draft) Drop() { _, _ = d.f.Close(), os.Remove(d.f.Name()) }

// Keep puts the login into the file, whole or not at all.
func (d *Draft) Keep(l *Login) error {
	raw, err := json.MarshalIndent(l, "", "  ")
	if err == nil {
		_, err = d.f.WriteAt(append(raw, '\n'), 0)
	}
	if err == nil {
		err = d.f.Truncate(int64(len(raw)) + 1)
	}
	if err == nil {
		err = d.f.Sync()
	}
	if err == nil {
		err = vfs.Install(d.f.Name(), d.name)
	}
	if err != nil {
		d.Drop()
		return local(d.name, err)
	}
	_ = d.f.Close() // it is synced
	return nil
}

// lockEvery is how often a lock is looked after that another process has.
const lockEvery = 50 * time.Millisecond

// Lock keeps other processes from renewing the login of a file until unlock.
func Lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name+".lock", os.O_CREATE|os.O_RDWR, 0o600) //nolint:gosec // it is the user's own
	if err != nil {
		return nil, local(name+".lock", err)
	}
	t := time.NewTicker(lockEvery)
	defer t.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a descriptor fits
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, local(name+".lock", err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fserror.New(fserror.Unavailable, "login", name, "another process renews it, and does not come to an end")
		case <-t.C:
		}
	}
}

func local(name string, err error) error {
	kind := fserror.InvalidArgument
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind = fserror.Permission
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		kind = fserror.NoSpace
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		name, err = pe.Path, pe.Err
	}
	return &fserror.Error{Op: "login", Path: name, Kind: kind, Err: err}
}
