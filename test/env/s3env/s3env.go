// Package s3env starts real S3 servers for tests, and puts a proxy in front of
// them that delays, loses, repeats and alters what passes. It knows nothing of
// namenodes, so that tests of any layer can use it.
package s3env

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/leasefs/leasefs/test/env/size"
	"github.com/leasefs/leasefs/test/env/spawn"
)

// The S3 servers that Start knows. Both enforce what leasefs relies on, and
// have nothing else in common.
const (
	Versitygw = "versitygw"
	SeaweedFS = "seaweedfs"
)

// Servers are all of them, for tests of the store itself.
func Servers() []string { return []string{Versitygw, SeaweedFS} }

// ServersUnder are those for tests of what stands on the store: daily one of them, since
// the store's own tests hold each to the same, and in full size the other.
func ServersUnder() []string { return size.Of([]string{Versitygw}, []string{SeaweedFS}) }

// startTries bounds the wait for a server, with startPause between.
const (
	startTries = 1200
	startPause = 50 * time.Millisecond
)

// Server is an S3 server in a process of its own, with an empty bucket. It keeps
// everything in a folder of the test and ends with it.
type Server struct {
	Name      string
	Endpoint  string // http://127.x.y.z:port
	Bucket    string
	Region    string
	AccessKey string
	SecretKey string

	at   Place
	http http.Client
	cmd  *exec.Cmd
	done <-chan struct{} // closed when the process ended
	log  string          // file
}

// Place is where a server runs. The zero value is this machine and a folder of the test.
type Place struct {
	Root string   // where Versitygw keeps its buckets
	Via  []string // starts a command there
	Addr string   // HOST:PORT
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Start starts a server on a loopback address that no other test has. It
// fails, and never skips, where the server is not installed.
func Start(t testing.TB, name string) *Server {
	t.Helper()
	return start(t, name, Place{})
}

// StartOver starts Versitygw over a folder, which it does not remove.
func StartOver(t testing.TB, root string) *Server {
	t.Helper()
	return start(t, Versitygw, Place{Root: root})
}

// StartAt starts Versitygw elsewhere.
func StartAt(t testing.TB, at Place) *Server {
	t.Helper()
	return start(t, Versitygw, at)
}

func start(t testing.TB, name string, at Place) *Server {
	t.Helper()
	s := &Server{
		Name: name, Bucket: "leasefs-test", Region: "us-east-1",
		AccessKey: "leasefs", SecretKey: "a-secret-of-tests", at: at,
	}
	s.http.Transport = &http.Transport{DialContext: at.Dial}
	dir := t.TempDir()
	s.log = filepath.Join(dir, "log")
	var health string
	switch name {
	case Versitygw:
		s.cmd, health = s.versitygw(t, dir)
	case SeaweedFS:
		s.cmd, health = s.seaweedfs(t, dir)
	default:
		t.Fatalf("no S3 server %q", name)
	}
	log, err := os.Create(s.log)
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Dir, s.cmd.Stdout, s.cmd.Stderr = dir, log, log
	s.done, err = spawn.Start(s.cmd)
	_ = log.Close() // the process has its own
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	t.Cleanup(s.Kill)
	s.await(t, "GET", health)
	s.await(t, http.MethodPut, "/"+s.Bucket)
	return s
}

func (s *Server) versitygw(t testing.TB, dir string) (cmd *exec.Cmd, health string) {
	addr := s.at.Addr
	if addr == "" {
		addr = freePorts(t, 1)[0]
	}
	s.Endpoint = "http://" + addr
	root := cmp.Or(s.at.Root, filepath.Join(dir, "objects"))
	users := filepath.Join(dir, "users")
	for _, folder := range []string{root, users} {
		if err := os.MkdirAll(folder, 0o750); err != nil {
			t.Fatal(err)
		}
	}
	argv := append(slices.Clone(s.at.Via), tool(t, "versitygw"), "--port", addr, "--iam-dir", users, "--iam-cache-disable", "--access", s.AccessKey, "--secret", s.SecretKey,
		"--region", s.Region, "--health", "/health", "--quiet", "posix", root)
	return exec.Command(argv[0], argv[1:]...), "/health" // #nosec G204
}

func (s *Server) seaweedfs(t testing.TB, dir string) (cmd *exec.Cmd, health string) {
	args := []string{"server", "-s3", "-s3.iam=false", "-s3.localSocket=", "-s3.port.iceberg=0", "-s3.port.lance=0",
		"-dir=" + dir, "-s3.config=" + filepath.Join(dir, "identities.json"),
		"-master.volumeSizeLimitMB=64", "-volume.max=64", "-master.telemetry=false"}
	identities := fmt.Sprintf(`{"identities":[{"name":"test","credentials":[{"accessKey":%q,"secretKey":%q}],"actions":["Admin","Read","Write","List"]}]}`, s.AccessKey, s.SecretKey)
	if err := os.WriteFile(filepath.Join(dir, "identities.json"), []byte(identities), 0o600); err != nil {
		t.Fatal(err)
	}
	roles := []string{"master", "volume", "filer", "s3"}
	ports := freePorts(t, 2*len(roles))
	var host string
	for i, role := range roles {
		var port, grpc string
		host, port, _ = net.SplitHostPort(ports[2*i])
		_, grpc, _ = net.SplitHostPort(ports[2*i+1])
		args = append(args, "-"+role+".port="+port, "-"+role+".port.grpc="+grpc)
		if role == "s3" {
			s.Endpoint = "http://" + ports[2*i]
		}
	}
	return exec.Command(tool(t, "weed"), append(args, "-ip="+host, "-ip.bind="+host)...), "/healthz"
}

// tool is the path of a program that scripts/setup installs.
func tool(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	for err == nil {
		if _, serr := os.Stat(filepath.Join(dir, "go.mod")); serr == nil {
			break
		}
		if up := filepath.Dir(dir); up != dir {
			dir = up
			continue
		}
		err = errors.New("no go.mod above the test's folder")
	}
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, ".cache", "bin", name)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("%s is not in .cache/bin: run make setup, which installs what the tests need", name)
	} else if err != nil {
		t.Fatal(err)
	}
	return path
}

// freePorts returns that many free ports of a loopback address that no other
// test has.
func freePorts(t testing.TB, n int) []string {
	t.Helper()
	addr := spawn.Loopback() + ":0"
	out := make([]string, n)
	for i := range out {
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all are held until all are known
		out[i] = l.Addr().String()
	}
	return out
}

// await sends a request until the server does it.
func (s *Server) await(t testing.TB, method, path string) {
	t.Helper()
	tick := time.NewTicker(startPause)
	defer tick.Stop()
	var last error
	for range startTries {
		var status int
		var body []byte
		if status, body, last = s.Send(t.Context(), method, path, nil); last == nil && status/100 == 2 {
			return
		}
		if last == nil {
			last = fmt.Errorf("answer %d: %.300s", status, body)
		}
		select {
		case <-tick.C:
		case <-s.done:
			t.Fatalf("%s ended at once: %v\n%s", s.Name, s.cmd.ProcessState, s.tail())
		case <-t.Context().Done():
			t.Fatal("the test ended")
		}
	}
	t.Fatalf("%s did not come up: %s %s: %v\n%s", s.Name, method, path, last, s.tail())
}

func (s *Server) tail() string {
	b, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4000):])
}

// Kill ends the server as kill -9 does. A second Kill does nothing.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	<-s.done
}

// PID is the id of the server's process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Pause stops the server's process (SIGSTOP): it takes connections, and nothing
// answers.
func (s *Server) Pause(t testing.TB) { t.Helper(); s.signal(t, syscall.SIGSTOP) }

// Continue ends a Pause.
func (s *Server) Continue(t testing.TB) { t.Helper(); s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("signal %s: %v", s.Name, err)
	}
}

// URL is what leasefs takes for --blocks.
func (s *Server) URL(prefix string) string { return s.urlAt(s.Endpoint, prefix) }

func (s *Server) urlAt(endpoint, prefix string) string {
	return "s3://" + s.Bucket + "/" + strings.Trim(prefix, "/") + "?endpoint=" + endpoint + "&region=" + s.Region
}

// Env are the environment variables that a process needs to use the server.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey,
		"AWS_EC2_METADATA_DISABLED=true", "AWS_CONFIG_FILE=/dev/null", "AWS_SHARED_CREDENTIALS_FILE=/dev/null",
	}
}

// SetEnv sets Env for this process. All servers have the same, so tests that run
// side by side may each do it.
func (s *Server) SetEnv(t testing.TB) {
	t.Helper()
	for _, pair := range s.Env() {
		name, value, _ := strings.Cut(pair, "=")
		if err := os.Setenv(name, value); err != nil { //nolint:usetesting // t.Setenv is not for tests that run side by side
			t.Fatal(err)
		}
	}
}

// Credentials are for a store in this process.
func (s *Server) Credentials() aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
		return aws.Credentials{AccessKeyID: s.AccessKey, SecretAccessKey: s.SecretKey}, nil
	})
}

// AddKeys makes keys that may do everything besides those of Server. Only
// Versitygw can.
func (s *Server) AddKeys(t testing.TB, access, secret string) {
	t.Helper()
	s.admin(t, "create-user", "--access", access, "--secret", secret, "--role", "admin")
}

// RemoveKeys makes keys unknown that AddKeys has made.
func (s *Server) RemoveKeys(t testing.TB, access string) {
	t.Helper()
	s.admin(t, "delete-user", "--access", access)
}

func (s *Server) admin(t testing.TB, args ...string) {
	t.Helper()
	if s.Name != Versitygw {
		t.Fatalf("%s has no commands for users", s.Name)
	}
	args = append([]string{"admin", "--access", s.AccessKey, "--secret", s.SecretKey, "--region", s.Region, "--endpoint-url", s.Endpoint}, args...)
	if out, err := exec.CommandContext(t.Context(), tool(t, Versitygw), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", Versitygw, args[9:], err, out)
	}
}

// Send sends a request, signed, past all that leasefs has: the path begins with
// a slash and the bucket.
func (s *Server) Send(ctx context.Context, method, path string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.Endpoint+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	creds, err := s.Credentials().Retrieve(ctx)
	if err != nil {
		return 0, nil, err
	}
	const payload = "UNSIGNED-PAYLOAD"
	req.Header.Set("X-Amz-Content-Sha256", payload)
	err = v4.NewSigner().SignHTTP(ctx, creds, req, payload, "s3", s.Region, time.Now(), func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err != nil {
		return 0, nil, err
	}
	req.Close = true
	resp, err := s.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// Put stores an object of any name, unconditionally.
func (s *Server) Put(t testing.TB, name string, body []byte) {
	t.Helper()
	if status, answer, err := s.Send(t.Context(), http.MethodPut, "/"+s.Bucket+"/"+name, body); err != nil || status/100 != 2 {
		t.Fatalf("put %s: %d %s %v", name, status, answer, err)
	}
}

// List returns the names of all objects that begin with prefix, as XML: for
// looking whether a name is in it.
func (s *Server) List(t testing.TB, prefix string) string {
	t.Helper()
	status, answer, err := s.Send(t.Context(), http.MethodGet, "/"+s.Bucket+"?list-type=2&prefix="+prefix, nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("list %s: %d %s %v", prefix, status, answer, err)
	}
	return string(answer)
}
