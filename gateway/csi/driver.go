package csi

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/leasefs/leasefs/client"
	"github.com/leasefs/leasefs/internal/fserror"
	"github.com/leasefs/leasefs/internal/fspath"
)

const (
	// DefaultName is the driver's name, which storage classes name as their provisioner.
	DefaultName = "leasefs.github.io"
	// DefaultBase is the directory with the volumes.
	DefaultBase = "/volumes"
	// DefaultState is the folder of the ledger. It goes with a restart of the machine, as
	// mounts do.
	DefaultState = "/run/leasefs-csi"

	op = "csi"
	// endTime is how long calls under way have once the driver is asked to end.
	endTime = 10 * time.Second
)

// Config says what a driver serves.
type Config struct {
	// Endpoint is the socket: unix:///PATH.
	Endpoint string
	// Name and Version are what the driver says of itself. Empty Name: DefaultName.
	Name, Version string
	// NodeID is the name of this machine for the orchestrator, at most 192 bytes; empty: no
	// node is served.
	NodeID string
	// Controller serves the calls that make and remove volumes.
	Controller bool
	// Base, of a controller, is the directory of the volumes. It is made if it is missing.
	// Empty: DefaultBase.
	Base string
	// State, of a node, is a folder of this machine for the ledger. It holds the tokens of
	// volumes that are staged with one. It is made if it is missing. Empty: DefaultState.
	State string
	// Client says how a controller reaches the namespace, and as whom.
	Client client.Config
	// Command is what a node starts to mount. It prints a line "ready" and the folder once it
	// is mounted, serves it until it is unmounted, and ends with a kind's exit code if it
	// cannot.
	Command func(Mount) *exec.Cmd
	// Logger gets failed calls, and mounts that were made good.
	Logger *slog.Logger
}

// Mount says what is to be mounted. Nothing in it is secret.
type Mount struct {
	Path      string   // the directory of the namespace
	Dir       string   // the folder of this machine
	Options   []string // as of mount(8): noexec, uid=N, gid=N
	Wait      bool     // opening a file that another holds waits
	User      string   // as whom; empty: as the driver
	TokenFile string   // what proves that; empty: as the driver does
}

// Serve serves until ctx ends, which is no error. ready is called once it listens; its error
// ends it. Mounts stay when it ends.
func Serve(ctx context.Context, cfg Config, ready func() error) (err error) {
	if !cfg.Controller && cfg.NodeID == "" {
		return fserror.New(fserror.InvalidArgument, op, "", "there is nothing to serve: name the node, or serve the controller, or both")
	}
	if len(cfg.NodeID) > 192 {
		return fserror.New(fserror.InvalidArgument, op, "", "the name of the node has %d bytes, and at most 192 are allowed", len(cfg.NodeID))
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		resp, err := handler(ctx, req)
		if err != nil {
			cfg.Logger.Warn("a call failed", "call", info.FullMethod, "err", err) // never the request: it may have secrets
			if _, has := status.FromError(err); !has {
				err = status.Error(fserror.KindOf(err).Code(), err.Error())
			}
		}
		return resp, err
	}))
	spec.RegisterIdentityServer(server, identity{name: cfg.Name, version: cfg.Version, controller: cfg.Controller})
	l, err := listen(ctx, cfg.Endpoint) // before a mount or a file is made: it changes the process's umask
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // the server has closed it, once it served
	if cfg.Controller {
		c := &controller{}
		if c.base, err = fspath.Clean(cfg.Base); err != nil || c.base == "/" {
			return fserror.New(fserror.InvalidArgument, op, cfg.Base, "the base of volumes must be an absolute path below the root")
		}
		cfg.Client.Umask, cfg.Client.Logger = new(os.FileMode), cfg.Logger
		if c.fs, err = client.New(ctx, cfg.Client); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.fs.Close()) }()
		spec.RegisterControllerServer(server, c)
	}
	if cfg.NodeID != "" {
		n, err := newNode(cfg)
		if err != nil {
			return err
		}
		var watch sync.WaitGroup
		life, end := context.WithCancel(ctx)
		defer func() {
			end()
			watch.Wait()
			n.ledger.close() // the next driver may have it when this one makes no mount any more
		}()
		watch.Go(func() { n.watch(life) })
		spec.RegisterNodeServer(server, n)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	defer server.Stop() // before what its calls use
	if err := ready(); err != nil {
		return err
	}
	select {
	case err := <-ended:
		return fserror.Wrap(fserror.Internal, op, cfg.Endpoint, err)
	case <-ctx.Done():
	}
	timer := time.AfterFunc(endTime, server.Stop)
	defer timer.Stop()
	server.GracefulStop()
	return nil
}

// listen listens at a Unix socket, in the place of one that a driver left.
func listen(ctx context.Context, endpoint string) (net.Listener, error) {
	scheme, path, _ := strings.Cut(endpoint, ":")
	path = strings.TrimPrefix(path, "//")
	if scheme != "unix" || !strings.HasPrefix(path, "/") {
		return nil, fserror.New(fserror.InvalidArgument, op, endpoint, "the endpoint is no unix:///PATH: other sockets cannot tell who calls")
	}
	if c, err := new(net.Dialer).DialContext(ctx, "unix", path); err == nil {
		_ = c.Close() // it only asked
		return nil, fserror.New(fserror.Exists, op, path, "another driver serves there")
	} else if errors.Is(err, syscall.ECONNREFUSED) { // by a file of any other kind, too
		if info, err := os.Lstat(path); err == nil && info.Mode().Type() != os.ModeSocket {
			return nil, fserror.New(fserror.Exists, op, path, "there is something that is no socket: name another path, or move it away")
		}
		if err := os.Remove(path); err != nil {
			return nil, fserror.Wrap(fserror.Internal, op, path, err)
		}
	}
	mask := syscall.Umask(0o177) // the socket is root's from its first moment
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	syscall.Umask(mask)
	if err != nil {
		return nil, fserror.Wrap(fserror.Internal, op, path, err)
	}
	return l, nil
}

// identity says which driver this is.
type identity struct {
	spec.UnimplementedIdentityServer
	name, version string
	controller    bool
}

func (i identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: i.name, VendorVersion: i.version}, nil
}

func (i identity) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	resp := new(spec.GetPluginCapabilitiesResponse)
	if i.controller {
		resp.Capabilities = append(resp.Capabilities, &spec.PluginCapability{Type: &spec.PluginCapability_Service_{
			Service: &spec.PluginCapability_Service{Type: spec.PluginCapability_Service_CONTROLLER_SERVICE},
		}})
	}
	return resp, nil
}

// Probe does not ask a namenode: a driver is restarted when its probe fails, which would end
// its mounts and bring back no namenode.
func (i identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}

// busy are the volumes for which a call is under way. The orchestrator is told to come again
// rather than wait: it may have lost a call of its own.
type busy struct {
	mu  sync.Mutex
	ids map[string]bool
}

// take returns what ends the call, or an error if another is under way.
func (b *busy) take(id string) (func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ids[id] {
		return nil, status.Errorf(codes.Aborted, "%s: another call for this volume is under way; try again", id)
	}
	if b.ids == nil {
		b.ids = make(map[string]bool)
	}
	b.ids[id] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ids, id)
	}, nil
}
