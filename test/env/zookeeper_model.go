package env

import (
	"fmt"
	"net"
	"os"
	"testing"

	"github.com/leasefs/leasefs/test/env/spawn"
	"github.com/leasefs/leasefs/test/sim/zkmodel"
)

// modelVariable, set to "model", has the ensembles of tests be models of ZooKeeper
// in this process instead of real servers, for suites that run on both. Set to a folder,
// it has them be servers of the jars in there, instead of Debian's.
const modelVariable = "LEASEFS_TEST_ZOOKEEPER"

const aModel = "model"

func wantsModel() bool { return os.Getenv(modelVariable) == aModel }

// zooKeeperJars is the folder of a ZooKeeper that is not Debian's; empty: Debian's.
func zooKeeperJars() string {
	if wantsModel() {
		return ""
	}
	return os.Getenv(modelVariable)
}

// modelServer is what stands for a server's process.
type modelServer struct {
	ensemble *zkmodel.Ensemble
	server   *zkmodel.Server
	addr     string
	listener net.Listener // nil while it is down
}

// modelZooKeeper makes an ensemble of model servers at loopback ports.
func modelZooKeeper(cfg ZooKeeperConfig) (*ZooKeeper, error) {
	if cfg.Machines != nil || cfg.Cert != "" {
		return nil, fmt.Errorf("env: the model of ZooKeeper has no machines and no TLS; unset %s", modelVariable)
	}
	host := spawn.Loopback()
	z := &ZooKeeper{model: zkmodel.New(zkmodel.Config{Servers: cfg.Servers, Tick: ZooKeeperTick})}
	for i := range cfg.Servers {
		m := &modelServer{ensemble: z.model, server: z.model.Server(i), addr: net.JoinHostPort(host, "0")}
		if err := m.listen(); err != nil {
			return nil, err
		}
		tcp := m.listener.Addr().(*net.TCPAddr)
		m.addr = tcp.String()
		z.servers = append(z.servers, &ZooKeeperServer{id: i + 1, host: host, client: tcp.Port, standalone: cfg.Servers == 1, model: m})
	}
	return z, nil
}

func (m *modelServer) listen() (err error) {
	if m.listener, err = net.Listen("tcp", m.addr); err == nil {
		go func(l net.Listener) { _ = m.server.Serve(l) }(m.listener) // until it is closed
	}
	return err
}

func (m *modelServer) end() {
	if m.listener != nil {
		_ = m.listener.Close()
		m.listener = nil
	}
	m.server.Stop()
}

func (m *modelServer) start(t testing.TB) {
	t.Helper()
	m.server.Start()
	if err := m.listen(); err != nil {
		t.Fatal(err)
	}
}

// mode is as ZooKeeperServer.Mode has it.
func (m *modelServer) mode() string {
	switch leader := m.ensemble.Leader(); {
	case leader == nil || m.listener == nil:
		return ""
	case m.ensemble.Servers() == 1:
		return "standalone"
	case leader == m.server:
		return "leader"
	default:
		return "follower"
	}
}

// stat is as ZooKeeperServer.Stat has it, for what the suites ask.
func (m *modelServer) stat(t testing.TB, name string) int64 {
	t.Helper()
	switch name {
	case "zk_watch_count":
		return int64(m.server.Watches())
	case "zk_znode_count":
		return int64(m.ensemble.Nodes())
	default:
		t.Fatalf("the model of ZooKeeper does not say %s", name)
		return 0
	}
}
