package s3

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/leasefs/leasefs/internal/blockstore"
	"github.com/leasefs/leasefs/internal/clock"
	"github.com/leasefs/leasefs/internal/fserror"
)

// What Config has unless told otherwise.
const (
	DefaultMaxTries   = 6
	DefaultMaxBackoff = 5 * time.Second
	DefaultTryTimeout = 30 * time.Second
	DefaultMaxConns   = 64
)

// credentialsEarly is how long before their end temporary credentials are
// renewed. A URL ends with the credentials that signed it.
const credentialsEarly = 5 * time.Minute

// Config says where and how a Store keeps its objects.
type Config struct {
	Location
	NamespaceID [16]byte // begins all names, after the prefix

	Clock  clock.Clock  // nil is clock.System; its Wall begins and ends signatures
	Logger *slog.Logger // nil is slog.Default()

	// MaxTries is how often a call is tried in all; MaxBackoff bounds the pause
	// before each but the first, which is random below 1, 2, 4… seconds.
	MaxTries   int
	MaxBackoff time.Duration
	// TryTimeout ends a try in which nothing moves; a PUT gets a second more
	// for each MiB.
	TryTimeout time.Duration
	// MaxConns is how many connections there are at a time. More calls wait.
	MaxConns int
	// MaxObject is the most stored bytes of a block; 0 is
	// blockstore.MaxObjectSize.
	MaxObject int64

	// PartSize is from how many bytes on a named object is put in parts of that
	// size, and then appears whole or not at all; 0 is DefaultPartSize. S3 takes
	// 5 MiB and more.
	PartSize int64

	// Credentials, nil for the usual ones: environment, ~/.aws/credentials and
	// config (AWS_PROFILE), a process named there, web identity, container and
	// instance roles. The files are read again when they change; others are asked
	// again before what they gave ends.
	Credentials aws.CredentialsProvider
	// Observe is told how long each try of a request has taken until its answer began, by
	// the method in lower case; nil: nobody asks.
	Observe func(method string, took time.Duration)
	// Transport carries all requests; nil is one of the store's own, with the
	// certificates of the system and of AWS_CA_BUNDLE.
	Transport http.RoundTripper
}

// Store is a blockstore.Store, and an Objects, in a bucket. It is safe for
// concurrent use, also by several processes.
type Store struct {
	bucket
	base   url.URL // of the bucket; names follow after a slash
	signer *v4.Signer
	own    *http.Transport // nil if Config.Transport was given
}

// bucket has objects by their names.
type bucket struct {
	diagnosis
	cfg    Config
	root   string // "PREFIX/<namespace id>/": begins all names
	api    *s3.Client
	closed atomic.Bool

	versions sync.Once // a warning was given
}

var _ blockstore.Store = (*Store)(nil)

// Open makes a store ready. It does not speak to it: Check does, and Probe.
// InvalidArgument for a Location that cannot be.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if !validBucket(cfg.Bucket) || !validPrefix(cfg.Prefix) {
		return nil, fserror.New(fserror.InvalidArgument, "open blocks", cfg.Location.String(), "not a location that ParseURL returns")
	}
	setDefaults(&cfg)
	options := []func(*config.LoadOptions) error{
		config.WithLogger(logging.Nop{}), // our errors say it
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = credentialsEarly }),
	}
	if cfg.Region != "" {
		options = append(options, config.WithRegion(cfg.Region))
	}
	if cfg.Credentials != nil {
		options = append(options, config.WithCredentialsProvider(cfg.Credentials))
	}
	sdk, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, fserror.Wrap(fserror.InvalidArgument, "open blocks", cfg.Location.String(), fmt.Errorf("the AWS settings in environment or ~/.aws: %w", err))
	}
	switch {
	case sdk.Region != "":
		cfg.Region = sdk.Region
	case cfg.Endpoint != "":
		cfg.Region = "us-east-1" // what stores other than AWS take, or ignore
	default:
		return nil, fserror.New(fserror.InvalidArgument, "open blocks", cfg.Location.String(), "no region: add region=NAME to the URL, or set AWS_REGION")
	}
	s := &Store{signer: v4.NewSigner()}
	s.cfg, s.at, s.tries, s.creds = cfg, cfg.Location, cfg.MaxTries, sdk.Credentials
	if cfg.Credentials == nil {
		s.creds = newFiles(sdk.Credentials, func(ctx context.Context) (aws.CredentialsProvider, error) {
			sdk, err := config.LoadDefaultConfig(ctx, options...)
			return sdk.Credentials, err
		}, cfg.Clock, cfg.Logger)
	}
	s.creds = &lasting{CredentialsProvider: s.creds, clock: cfg.Clock, log: cfg.Logger}
	s.root = hex.EncodeToString(cfg.NamespaceID[:]) + "/"
	if cfg.Prefix != "" {
		s.root = cfg.Prefix + "/" + s.root
	}
	at, err := s.resolve(ctx)
	if err != nil {
		return nil, err
	}
	s.base = at.found.URI
	carrier := cfg.Transport
	if carrier == nil {
		s.own = ownTransport(sdk.HTTPClient, cfg.MaxConns)
		carrier = s.own
	}
	s.line = newLine(carrier, &cfg)
	s.api = s3.NewFromConfig(sdk, s.configure, s3.WithEndpointResolverV2(at))
	return s, nil
}

func setDefaults(cfg *Config) {
	cfg.Clock = cmp.Or[clock.Clock](cfg.Clock, clock.System{})
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.MaxTries <= 0 {
		cfg.MaxTries = DefaultMaxTries
	}
	if cfg.MaxBackoff <= 0 {
		cfg.MaxBackoff = DefaultMaxBackoff
	}
	if cfg.TryTimeout <= 0 {
		cfg.TryTimeout = DefaultTryTimeout
	}
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = DefaultMaxConns
	}
	if cfg.PartSize <= 0 {
		cfg.PartSize = DefaultPartSize
	}
	if cfg.MaxObject <= 0 || cfg.MaxObject > blockstore.MaxObjectSize {
		cfg.MaxObject = blockstore.MaxObjectSize
	}
}

// configure sets up the library's client.
func (s *Store) configure(o *s3.Options) {
	o.Region = s.cfg.Region
	o.Credentials = s.creds
	o.UsePathStyle = s.cfg.PathStyle
	if s.cfg.Endpoint != "" {
		o.BaseEndpoint = aws.String(s.cfg.Endpoint)
	}
	o.HTTPClient = s.line
	o.AppID = "leasefs"
	o.Logger = logging.Nop{} // our errors say it
	// Checksums are given where they matter; the library's own additions are
	// not understood by all stores.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	o.DisableLogOutputChecksumValidationSkipped = true
	o.Retryer = retry.NewStandard(func(o *retry.StandardOptions) {
		o.MaxAttempts = s.cfg.MaxTries
		o.MaxBackoff = s.cfg.MaxBackoff
		o.Backoff = retry.BackoffDelayerFunc(s.pause)
		o.RateLimiter = ratelimit.None // tries are counted for each call, not for the process
		o.Retryables = append([]retry.IsErrorRetryable{retry.IsErrorRetryableFunc(alsoRetry)}, o.Retryables...)
	})
}

// pause is how long to wait after a number of tries. The library's own pauses
// are all alike once they are as long as they may be: then all callers of a
// store that was away would come back at one moment.
func (s *Store) pause(tries int, _ error) (time.Duration, error) {
	bound := time.Second << min(max(tries-1, 0), 20)
	bound = min(bound, s.cfg.MaxBackoff)
	return time.Duration(rand.Int64N(int64(bound) + 1)), nil //nolint:gosec // spreads load, keeps no secret
}

// resolve finds where the bucket is by the library's rules.
func (s *Store) resolve(ctx context.Context) (*endpoint, error) {
	p := s3.EndpointParameters{
		Region: aws.String(s.cfg.Region), Bucket: aws.String(s.cfg.Bucket), ForcePathStyle: aws.Bool(s.cfg.PathStyle),
	}
	if s.cfg.Endpoint != "" {
		p.Endpoint = aws.String(s.cfg.Endpoint)
	}
	e, err := s3.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, p)
	if err != nil {
		return nil, fserror.Wrap(fserror.InvalidArgument, "open blocks", s.cfg.Location.String(), err)
	}
	return &endpoint{e}, nil
}

// ownTransport is the library's, with its certificates, and our limits.
func ownTransport(client aws.HTTPClient, maxConns int) *http.Transport {
	b, ok := client.(*awshttp.BuildableClient)
	if !ok {
		b = awshttp.NewBuildableClient()
	}
	t := b.GetTransport()
	t.MaxConnsPerHost = maxConns
	t.MaxIdleConnsPerHost = maxConns / 2
	t.MaxIdleConns = maxConns
	t.IdleConnTimeout = time.Minute
	t.DisableCompression = true
	return t
}

// Location is where the store is, with the region that is in use.
func (s *Store) Location() Location { return s.cfg.Location }

// Usage returns 0, 0: a bucket has no limit that it tells.
func (s *Store) Usage(context.Context) (free, total int64, err error) { return 0, 0, nil }

// Close ends the store; calls that begin afterwards fail with Closed.
func (s *Store) Close() error {
	if !s.closed.Swap(true) && s.own != nil {
		s.own.CloseIdleConnections()
	}
	return nil
}

// open returns Closed after Close.
func (b *bucket) open(op string) error {
	if b.closed.Load() {
		return fserror.New(fserror.Closed, op, "", "the block store is closed")
	}
	return nil
}
