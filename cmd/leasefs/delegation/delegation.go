// Package delegation has what the commands about delegation tokens do with files, and how
// they show tokens.
package delegation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/proof"
	"github.com/leasefs/leasefs/internal/vfs"
)

// Get makes a token and puts it into a file of mode 600, in place of one that may be
// there. If that fails the token is cancelled.
func Get(ctx context.Context, fs *client.FS, file, renewer string, ttl time.Duration) (client.DelegationToken, error) {
	f, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+".*") // of mode 600
	if err != nil {
		return client.DelegationToken{}, local(file, err)
	}
	token, t, err := client.NewDelegationTokens(fs).Get(ctx, renewer, ttl)
	if err != nil {
		return t, errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	_, err = fmt.Fprintf(f, "%s %s\n", fs.Info().User, token)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = vfs.Install(f.Name(), file)
	}
	if err != nil {
		return t, errors.Join(local(file, err), os.Remove(f.Name()), client.NewDelegationTokens(fs).Cancel(ctx, client.TokenRef{ID: t.ID}))
	}
	return t, nil
}

// Ref names the token of an ID, or of a file. A file whose name is a number is named ./NUMBER.
func Ref(idOrFile string) (client.TokenRef, error) {
	if id, err := strconv.ParseUint(idOrFile, 10, 64); err == nil && id > 0 {
		return client.TokenRef{ID: id}, nil
	}
	own, err := proof.OpenOwn(clock.System{}, idOrFile)
	if err != nil {
		return client.TokenRef{}, err
	}
	return client.TokenRef{Token: own.Get().Token}, nil
}

// JSON is a token as --json shows it.
func JSON(t client.DelegationToken) map[string]any {
	out := map[string]any{"id": t.ID, "issued": t.Issued.UTC(), "expires": t.Expires.UTC(), "ends": t.Ends.UTC()}
	if t.User != "" {
		out["user"], out["renewer"] = t.User, t.Renewer
	}
	return out
}

// Line is a token in words.
func Line(t client.DelegationToken) string {
	return fmt.Sprintf("token %d: good until %s, can be renewed until %s", t.ID, t.Expires.Format(time.DateTime), t.Ends.Format(time.DateTime))
}

// Header names the columns of Row.
const Header = "ID\tUSER\tRENEWER\tISSUED\tEXPIRES\tENDS"

// Row writes a token as a row of a table.
func Row(w io.Writer, t client.DelegationToken) {
	fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\n", t.ID, t.User, t.Renewer, t.Issued.Format(time.DateTime), t.Expires.Format(time.DateTime), t.Ends.Format(time.DateTime))
}

func local(name string, err error) error {
	kind := fserror.InvalidArgument
	switch {
	case errors.Is(err, os.ErrNotExist):
		kind = fserror.NotFound
	case errors.Is(err, os.ErrPermission):
		kind = fserror.Permission
	}
	return &fserror.Error{Kind: kind, Path: name, Err: err}
}
