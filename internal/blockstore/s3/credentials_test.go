package s3_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/blockstore/s3"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// usual opens a store with the credentials that config and credentials files
// give; the function tells the access key that a call, and a URL, is signed with.
func usual(t *testing.T, configText, credentialsText string) (s *s3.Store, key func() string, now *clock.Fake, credentials string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"config": configText, "credentials": credentialsText} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	credentials = filepath.Join(dir, "credentials")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", credentials)
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	now = new(clock.Fake)
	now.ShiftWall(time.Since(now.Wall()))
	var signedBy string
	s = offline(t, nowhere, func(c *s3.Config) {
		c.Credentials, c.Clock, c.Logger = nil, now, slog.New(slog.DiscardHandler)
		c.Transport = carrier(func(r *http.Request) (*http.Response, error) {
			_, signedBy, _ = strings.Cut(r.Header.Get("Authorization"), "Credential=")
			return reply(r, 200, "<ListBucketResult><Name>blocks</Name></ListBucketResult>"), nil
		})
	})
	return s, func() string {
		t.Helper()
		now.Advance(time.Second)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		of, _, _ := strings.Cut(signedBy, "/")
		if got, err := s.SignGet(blockstore.Key{Term: 1}, now.Wall().Add(time.Minute)); err != nil || !strings.Contains(got.URL, "X-Amz-Credential="+of+"%2F") {
			t.Errorf("a call is signed with %s, a URL is %s, %v", of, got.URL, err)
		}
		return of
	}, now, credentials
}

func inFile(key string) string {
	return fmt.Sprintf("[default]\naws_access_key_id = %s\naws_secret_access_key = x\n", key)
}

// TestCredentialsFileRenewed: the file is rewritten, in place or by another
// that takes its place, and no restart is needed.
func TestCredentialsFileRenewed(t *testing.T) {
	_, key, _, file := usual(t, "", inFile("first"))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(want string) {
		t.Helper()
		if got := key(); got != want {
			t.Errorf("signed with %q, want %q", got, want)
		}
	}
	want("first")
	write(file, inFile("the-second"))
	want("the-second")
	write(file, "[default]\naws_access_key_id = half of it\n") // somebody is writing
	want("the-second")
	write(file+".new", inFile("the-third"))
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	want("the-third")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	want("the-third")
	write(file, inFile("fourth"))
	want("fourth")
}

// TestCredentialProcess: what a program gives is asked for again before it ends,
// and no URL lives longer.
func TestCredentialProcess(t *testing.T) {
	answer := filepath.Join(t.TempDir(), "answer")
	give := func(key string, ends time.Time) {
		t.Helper()
		text := fmt.Sprintf(`{"Version":1,"AccessKeyId":%q,"SecretAccessKey":"x","SessionToken":"y","Expiration":%q}`, key, ends.UTC().Format(time.RFC3339))
		if err := os.WriteFile(answer, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	over := time.Now().Add(4 * time.Minute).UTC().Truncate(time.Second) // so soon that it is asked each time
	give("one", over)
	s, key, now, _ := usual(t, "[default]\ncredential_process = cat "+answer+"\n", "")
	if got := key(); got != "one" {
		t.Errorf("signed with %q", got)
	}
	got, err := s.SignGet(blockstore.Key{Term: 1}, now.Wall().Add(15*time.Minute))
	if err != nil || got.Expires.After(over) || got.Expires.Before(over.Add(-2*time.Second)) {
		t.Errorf("a URL until %s, the credentials end at %s; %v", got.Expires, over, err)
	}
	if err := os.Remove(answer); err != nil {
		t.Fatal(err)
	}
	if got := key(); got != "one" { // they are good for four minutes
		t.Errorf("signed with %q", got)
	}
	give("two", time.Now().Add(time.Hour))
	if got := key(); got != "two" {
		t.Errorf("signed with %q", got)
	}
}

// TestCredentialsAreOver: nobody renews them in time.
func TestCredentialsAreOver(t *testing.T) {
	ends := time.Now().Add(-time.Minute).UTC().Truncate(time.Second)
	s := offline(t, nowhere, func(c *s3.Config) {
		c.Credentials = static(func(c *aws.Credentials) { c.CanExpire, c.Expires, c.Source = true, ends, "a test" })
	})
	_, err := s.SignGet(blockstore.Key{Term: 1}, time.Now().Add(time.Minute))
	want := "the temporary credentials of the block store ended at " + ends.Format(time.RFC3339) + ", and nobody gives new ones: renew them where they come from (a test)"
	if !errors.Is(err, fserror.Permission) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v\nwant %s", err, want)
	}
	// Who fails to renew those that are over is heard.
	first := true
	s = offline(t, nowhere, func(c *s3.Config) {
		c.Credentials = aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			if first {
				first = false
				return aws.Credentials{AccessKeyID: "k", SecretAccessKey: "s", CanExpire: true, Expires: ends}, nil
			}
			return aws.Credentials{}, errors.New("the role is gone")
		})
	})
	for range 2 {
		if _, err = s.SignGet(blockstore.Key{Term: 1}, time.Now().Add(time.Minute)); !errors.Is(err, fserror.Permission) {
			t.Errorf("%v, want Permission", err)
		}
	}
	if !strings.Contains(err.Error(), "the role is gone") {
		t.Error(err)
	}
}
