package s3

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/leasefs/leasefs/internal/clock"
)

// lookAgain is how long credentials files are taken to be as they were.
const lookAgain = time.Second

// files is a provider of the usual credentials that reads ~/.aws/credentials and
// ~/.aws/config again when one of them changed, so that whoever renews keys in a
// file need not restart a namenode. The library reads them once only.
//
// A file that cannot be used leaves the credentials as they were, with a
// warning. It is safe for concurrent use.
type files struct {
	load  func(context.Context) (aws.CredentialsProvider, error)
	names []string
	clock clock.Clock
	log   *slog.Logger

	mu      sync.Mutex
	current aws.CredentialsProvider
	seen    string        // what the files looked like then
	looked  time.Duration // when, by the clock's Mono
}

func newFiles(first aws.CredentialsProvider, load func(context.Context) (aws.CredentialsProvider, error), c clock.Clock, log *slog.Logger) *files {
	f := &files{load: load, clock: c, log: log, current: first, names: []string{
		cmp.Or(os.Getenv("AWS_SHARED_CREDENTIALS_FILE"), config.DefaultSharedCredentialsFilename()),
		cmp.Or(os.Getenv("AWS_CONFIG_FILE"), config.DefaultSharedConfigFilename()),
	}}
	f.seen, f.looked = f.look(), c.Mono()
	return f
}

// look is what tells a file from another version of it: it is rewritten, or
// another takes its place.
func (f *files) look() string {
	s := ""
	for _, name := range f.names {
		info, err := os.Stat(name)
		if err != nil {
			s += "none;"
			continue
		}
		s += fmt.Sprintf("%d,%d", info.Size(), info.ModTime().UnixNano())
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s += fmt.Sprintf(",%d", st.Ino)
		}
		s += ";"
	}
	return s
}

// Retrieve implements aws.CredentialsProvider.
func (f *files) Retrieve(ctx context.Context) (aws.Credentials, error) {
	return f.provider(ctx).Retrieve(ctx)
}

func (f *files) provider(ctx context.Context) aws.CredentialsProvider {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock.Mono()
	if now-f.looked < lookAgain {
		return f.current
	}
	f.looked = now
	seen := f.look()
	if seen == f.seen {
		return f.current
	}
	fresh, err := f.load(ctx)
	if err == nil {
		_, err = fresh.Retrieve(ctx)
	}
	if err != nil {
		f.log.Warn("the credentials files have changed and cannot be used; continuing with what was there before", "files", f.names, "cause", err)
		return f.current
	}
	f.current, f.seen = fresh, seen
	f.log.Info("the credentials files have changed and were read again", "files", f.names)
	return f.current
}

// lasting is a provider that continues with credentials which are good for a while
// when whoever renews them fails. It is then asked once a second.
type lasting struct {
	aws.CredentialsProvider
	clock clock.Clock
	log   *slog.Logger

	mu     sync.Mutex
	last   aws.Credentials
	again  time.Duration // when to ask next, by the clock's Mono
	warned time.Time     // end of the credentials of which the log has told
}

// Retrieve implements aws.CredentialsProvider. When credentials end the library
// judges by the machine's clock, and so does this.
func (l *lasting) Retrieve(ctx context.Context) (aws.Credentials, error) {
	l.mu.Lock()
	last, wait := l.last, l.clock.Mono() < l.again
	l.mu.Unlock()
	good := last.CanExpire && time.Now().Before(end(last))
	if good && wait {
		return last, nil
	}
	creds, err := l.CredentialsProvider.Retrieve(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		l.last, l.again = creds, 0
		return creds, nil
	}
	if !good {
		return creds, err
	}
	l.again = l.clock.Mono() + lookAgain
	if until := end(last); !until.Equal(l.warned) {
		l.warned = until
		l.log.Warn("the credentials of the block store cannot be renewed; those there are will do for a while", "until", until, "cause", err)
	}
	return last, nil
}

// end is when credentials end. The cache of the library says that they do so
// credentialsEarly before.
func end(c aws.Credentials) time.Time { return c.Expires.Add(credentialsEarly) }
