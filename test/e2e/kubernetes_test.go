package e2e_test

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// manifest is what the tests look at of one.
type manifest struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Ingress []struct { // of a NetworkPolicy
			From []struct {
				IPBlock           *struct{ CIDR string } `json:"ipBlock"`
				NamespaceSelector any                    `json:"namespaceSelector"`
			} `json:"from"`
			Ports []struct{ Port int } `json:"ports"`
		} `json:"ingress"`
		Template struct {
			Spec struct {
				Containers []struct {
					Name, Image string
					Args        []string `json:"args"`
					Env         []struct{ Name, Value string }
					Ports       []struct {
						Name          string
						ContainerPort int `json:"containerPort"`
					}
					VolumeMounts  []struct{ Name, MountPath string } `json:"volumeMounts"`
					LivenessProbe *struct {
						HTTPGet struct{ Path string } `json:"httpGet"`
					} `json:"livenessProbe"`
					ReadinessProbe *struct {
						HTTPGet struct{ Path string } `json:"httpGet"`
					} `json:"readinessProbe"`
				} `json:"containers"`
				Volumes []struct{ Name string }
			} `json:"spec"`
		} `json:"template"`
	} `json:"spec"`
}

// tool runs a program of .cache/bin, with an input.
func tool(ctx context.Context, t *testing.T, stdin string, argv ...string) (out, errs string, err error) {
	t.Helper()
	p := start(ctx, t, spec{argv: append([]string{"../../.cache/bin/" + argv[0]}, argv[1:]...), stdin: reader(stdin)})
	if code := p.wait(ctx); code != 0 {
		err = &exec.ExitError{ProcessState: p.cmd.ProcessState}
	}
	return p.out.String(), p.err.String(), err
}

// TestHelmChart: helm lint finds nothing wrong with the chart, Kubernetes' types have each field of
// what helm template makes of it (scripts/tools/chart), the program has each flag, and what a pod
// would start runs.
func TestHelmChart(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 4*time.Minute)
	const chart = "../../deploy/helm/leasefs"
	files, err := filepath.Glob("../../deploy/helm/examples/*.yaml")
	if err != nil || len(files) != 4 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "pod.yaml" { // of the user, not of the chart
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if _, errs, err := tool(ctx, t, string(raw), "chart"); err != nil {
				t.Errorf("%s: %s", name, errs)
			}
			continue
		}
		if out, errs, err := tool(ctx, t, "", "helm", "lint", "--strict", "--namespace", "ns", "--values", file, chart); err != nil {
			t.Errorf("%s: %s%s", name, out, errs)
		}
		made, errs, err := tool(ctx, t, "", "helm", "template", "try", chart, "--namespace", "ns", "--values", file)
		if err == nil {
			made, errs, err = tool(ctx, t, made, "chart")
		}
		if err != nil {
			t.Fatalf("%s: %s", name, errs)
		}
		var all []manifest
		if err := json.Unmarshal([]byte(made), &all); err != nil {
			t.Fatal(err)
		}
		ours := 0
		for _, m := range all {
			pod := m.Spec.Template.Spec
			volumes := map[string]bool{"data": true} // of the StatefulSet's template
			for _, v := range pod.Volumes {
				volumes[v.Name] = true
			}
			for _, c := range pod.Containers {
				for _, v := range c.VolumeMounts {
					if !volumes[v.Name] {
						t.Errorf("%s: %s %s has no volume %s", name, m.Kind, m.Metadata.Name, v.Name)
					}
				}
				if !strings.Contains(c.Image, "/leasefs/leasefs:") {
					continue
				}
				ours++
				var command, flags []string
				for _, a := range c.Args {
					if strings.HasPrefix(a, "--") {
						flag, _, _ := strings.Cut(a, "=")
						flags = append(flags, flag)
					} else {
						command = append(command, a)
					}
				}
				n := &namenode{t: t}
				help := n.run(ctx, append(command, "--help")...) + n.run(ctx, "--help")
				for _, f := range flags {
					if !regexp.MustCompile(`(?m)^ .*` + f + `[ ,]`).MatchString(help) {
						t.Errorf("%s: leasefs %s has no %s", name, strings.Join(command, " "), f)
					}
				}
				for _, v := range c.Env {
					if strings.HasPrefix(v.Name, "LEASEFS_") && !strings.Contains(help, "[$"+v.Name+"]") {
						t.Errorf("%s: no flag reads %s", name, v.Name)
					}
				}
			}
		}
		t.Logf("%s: %d manifests, %d containers of leasefs", name, len(all), ours)
		if want := map[string]int{"alone.yaml": 3, "three.yaml": 4, "elsewhere.yaml": 2}[name]; ours != want {
			t.Errorf("%s has %d containers of leasefs, want %d", name, ours, want)
		}
		switch name {
		case "alone.yaml":
			runPods(ctx, t, all)
		case "three.yaml":
			reachable(t, all)
		}
	}
	// What docs/KUBERNETES.md says: without a cluster helm install shows what it would make by helm template. The
	// lines that are not typed look at that.
	typed := toType(t, "docs/KUBERNETES.md", "With Helm, in ten lines",
		"kubectl -n leasefs rollout status statefulset/leasefs-namenode", "kubectl apply -f deploy/helm/examples/pod.yaml",
		"kubectl wait --for=condition=Ready pod/writer", "kubectl exec writer -- cat /data/hello")
	out := shell(ctx, t, "../..", `helm() { [ "$1" = install ] && .cache/bin/helm template "${@:2}"; }; `+typed, "HOME="+t.TempDir())
	made, errs, err := tool(ctx, t, out, "chart")
	if err != nil {
		t.Fatalf("%s: %s", typed, errs)
	}
	var all []manifest
	if err := json.Unmarshal([]byte(made), &all); err != nil || !slices.ContainsFunc(all, func(m manifest) bool { return m.Kind == "StatefulSet" && m.Metadata.Name == "leasefs-namenode" }) {
		t.Errorf("%s makes no leasefs-namenode: %v, %s", typed, err, out)
	}
	// A second release keeps what its driver has mounted elsewhere, and bounds what each mount has of the node.
	out, errs, err = tool(ctx, t, "", "helm", "template", "try", chart, "--values", filepath.Join(chart, "..", "examples", "alone.yaml"),
		"--set", "csi.driverName=second.leasefs.io,csi.state=/run/second,csi.mountMemory=3GiB")
	for _, want := range []string{"--state=/run/second\n", `mountPath: "/run/second"}`, `hostPath: {path: "/run/second",`, `{name: GOMEMLIMIT, value: "3GiB"}`} {
		if err != nil || strings.Count(out, want) != 1 {
			t.Errorf("a second release has %d times %q, not once: %v, %s", strings.Count(out, want), want, err, errs)
		}
	}
	// What would not work, or would let everybody in, is refused.
	for _, set := range []string{
		"namenode.replicas=1", "namenode.replicas=3,namenode.insecureTrustClients=true", "namenode.tokensSecret=x",
		"namenode.enabled=false", "namenode.insecureTrustClients=true,namenode.zookeeper.hosts=zk:2181",
	} {
		if _, errs, err := tool(ctx, t, "", "helm", "template", "try", chart, "--set", set); err == nil || !strings.Contains(errs, "namenode") {
			t.Errorf("--set %s: %v %s", set, err, errs)
		}
	}
}

// reachable: the namespace is made before any pod has to be ready, by what has the same way to ZooKeeper as
// namenodes, and may be there; nodes, whose drivers are no pods to a policy, reach namenodes, and those who are
// to read metrics the pages.
func reachable(t *testing.T, all []manifest) {
	t.Helper()
	for _, m := range all {
		var args []string
		for _, c := range m.Spec.Template.Spec.Containers {
			args = append(args, c.Args...)
		}
		switch m.Kind {
		case "Job":
			if hook := m.Metadata.Annotations["helm.sh/hook"]; hook != "pre-install" || !slices.Contains(args, "--if-missing") {
				t.Errorf("the namespace is made by a hook %q: %q", hook, args)
			}
			fallthrough
		case "StatefulSet":
			if !slices.Contains(args, "--zookeeper-tls-ca=/etc/leasefs/files/zookeeper-ca.pem") || len(m.Spec.Template.Spec.Volumes) == 0 {
				t.Errorf("%s %s: %q", m.Kind, m.Metadata.Name, args)
			}
		case "NetworkPolicy":
			in := m.Spec.Ingress
			if len(in) != 2 || len(in[0].Ports) != 2 || len(in[1].Ports) != 1 || in[1].Ports[0].Port != 8022 || len(in[1].From) != 1 || in[1].From[0].NamespaceSelector == nil {
				t.Fatalf("%+v", in)
			}
			if last := in[0].From[len(in[0].From)-1].IPBlock; last == nil || last.CIDR != "192.0.2.0/24" {
				t.Errorf("nodes do not reach namenodes: %+v", in[0])
			}
		}
	}
}

// runPods starts what the pods of a namenode alone and of the driver start, here: their ports
// and folders are others, and what is a variable of a pod has its value.
func runPods(ctx context.Context, t *testing.T, all []manifest) {
	t.Helper()
	dir := t.TempDir()
	ports := map[string]string{"8020": freePort(t), "8021": freePort(t), "8022": freePort(t)}
	here := strings.NewReplacer(
		"0.0.0.0:8020", ports["8020"], "0.0.0.0:8021", ports["8021"], "0.0.0.0:8022", ports["8022"],
		"$(POD_NAME).try-leasefs-namenode.ns.svc:8021", ports["8021"], "try-leasefs-namenode-0.try-leasefs-namenode.ns.svc:8020", ports["8020"],
		"/data/", dir+"/", "unix:///csi/", "unix://"+dir+"/", "/run/leasefs-csi", dir+"/state", "$(NODE_NAME)", "node-1",
	)
	ran := map[string]bool{}
	for _, m := range all { // the StatefulSet last, by kind
		if m.Kind == "StatefulSet" {
			all = append([]manifest{m}, all...)
			break
		}
	}
	for _, m := range all {
		for _, c := range m.Spec.Template.Spec.Containers {
			if !strings.Contains(c.Image, "/leasefs/leasefs:") || ran[m.Metadata.Name] {
				continue
			}
			ran[m.Metadata.Name] = true
			argv, environment := []string{leasefs}, []string{}
			for _, a := range c.Args {
				argv = append(argv, here.Replace(a))
			}
			for _, v := range c.Env {
				environment = append(environment, v.Name+"="+here.Replace(v.Value))
			}
			p := start(ctx, t, spec{argv: argv, env: environment})
			p.prints(ctx, p.out, "ready", func(s string) bool { return strings.HasPrefix(s, "ready ") })
			if m.Kind == "StatefulSet" {
				for _, path := range []string{c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path} {
					resp, err := http.Get("http://" + ports["8022"] + path) //nolint:noctx // it answers at once
					if err != nil {
						t.Fatal(err)
					}
					if resp.Body.Close(); resp.StatusCode != http.StatusOK {
						t.Errorf("%s: %s", path, resp.Status)
					}
				}
				continue
			}
			p.signal(15)
			p.ends(ctx, 0)
		}
	}
	if len(ran) != 3 {
		t.Errorf("ran %v", ran)
	}
}

// TestImage makes the files of the container image by the lines of its file, without a
// container runtime, and runs a namenode and a mount from these files alone.
func TestImage(t *testing.T) {
	t.Parallel()
	ctx := deadline(t, 5*time.Minute)
	toType(t, "docs/INSTALL.md", "With a container", // needs that runtime
		"docker build -f deploy/Containerfile -t leasefs .", "docker volume create leasefs", "docker run -d --name leasefs -v leasefs:/data leasefs namenode",
		"echo hello | docker exec -i leasefs leasefs create /hello", "docker exec leasefs leasefs cat /hello")
	raw, err := os.ReadFile("../../deploy/Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "out")
	text := strings.ReplaceAll(strings.ReplaceAll(string(raw), "\\\n", " "), "/out", root)
	built, last, ok := strings.Cut(text, "\nFROM scratch\n")
	if !ok {
		t.Fatal("the image begins with something")
	}
	shell := func(line string) {
		t.Helper()
		cmd := exec.CommandContext(ctx, "sh", "-euc", line)
		cmd.Dir = "../.."
		cmd.Env = append(os.Environ(), "VERSION=v9.8.7")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	for line := range strings.Lines(built) {
		if run, ok := strings.CutPrefix(line, "RUN "); ok && !strings.Contains(run, "mod download") {
			shell(run)
		}
	}
	for line := range strings.Lines(last) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "COPY" && strings.HasPrefix(f[2], "/etc/") {
			shell("install -D " + f[2] + " " + root + f[3])
		}
	}
	var entry, command []string
	user := ""
	for line := range strings.Lines(last) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &entry)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &command)
		case "USER":
			user = rest
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	inside := func(as string, environment []string, args ...string) *process {
		t.Helper()
		return start(ctx, t, spec{argv: append([]string{"chroot", "--userspec=" + as, root}, append(entry, args...)...), env: environment})
	}
	p := inside(user, nil, "--version")
	p.ends(ctx, 0)
	if p.out.String() != "leasefs v9.8.7\n" {
		t.Errorf("%q", p.out)
	}
	p = inside(user, []string{"LEASEFS_DATA=/data/a"}, command...) // by default nobody is let in from elsewhere
	p.ends(ctx, 2)
	names(t, p.err.String(), "--insecure-trust-clients")
	at := freePort(t)
	nn := inside(user, []string{"LEASEFS_DATA=/data/a"}, "namenode", "--listen", at, "--http", freePort(t))
	nn.prints(ctx, nn.out, "ready", func(s string) bool { return strings.HasPrefix(s, "ready ") })

	// A mount, as root, with the one device that it needs.
	shell("mkdir -p " + root + "/dev " + root + "/proc " + root + "/mnt && mknod " + root + "/dev/fuse c 10 229")
	script := `mount -t proc none "$ROOT/proc"; exec chroot "$ROOT" /usr/bin/leasefs --user leasefs mount /mnt`
	m := start(ctx, t, spec{argv: []string{"unshare", "--mount", "sh", "-ec", script}, env: []string{"ROOT=" + root, "LEASEFS_NAMENODE=" + at}})
	m.prints(ctx, m.out, "ready", func(s string) bool { return s == "ready /mnt\n" })
	m.signal(15)
	m.ends(ctx, 0)
	nn.signal(15)
	nn.ends(ctx, 0)
}
