// Command chart holds a Helm chart to what Helm and Kubernetes say. It lints the chart as helm
// lint --strict does, renders it as helm template does, both by Helm's own packages, checks that
// no manifest has a field that its kind does not have, and prints the manifests as one JSON array.
// Without a chart it checks the manifests of its standard input.
//
//	chart [-set KEY=VALUE,...] [CHART [VALUES.yaml...]]
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

const release, namespace = "try", "ns"

// kinds are those that the chart and its examples may have.
var kinds = map[string]func() any{
	"v1 Service": func() any { return new(core.Service) }, "v1 ServiceAccount": func() any { return new(core.ServiceAccount) },
	"v1 PersistentVolumeClaim": func() any { return new(core.PersistentVolumeClaim) }, "v1 Pod": func() any { return new(core.Pod) },
	"apps/v1 StatefulSet": func() any { return new(apps.StatefulSet) }, "apps/v1 Deployment": func() any { return new(apps.Deployment) },
	"apps/v1 DaemonSet": func() any { return new(apps.DaemonSet) }, "batch/v1 Job": func() any { return new(batch.Job) },
	"policy/v1 PodDisruptionBudget":                   func() any { return new(policy.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":              func() any { return new(networking.NetworkPolicy) },
	"rbac.authorization.k8s.io/v1 ClusterRole":        func() any { return new(rbac.ClusterRole) },
	"rbac.authorization.k8s.io/v1 ClusterRoleBinding": func() any { return new(rbac.ClusterRoleBinding) },
	"storage.k8s.io/v1 CSIDriver":                     func() any { return new(storage.CSIDriver) },
	"storage.k8s.io/v1 StorageClass":                  func() any { return new(storage.StorageClass) },
}

func main() {
	set := flag.String("set", "", "values, as helm's --set")
	flag.Parse()
	if err := run(flag.Args(), *set); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string, set string) error {
	var raw []byte
	var err error
	if len(args) == 0 {
		raw, err = io.ReadAll(os.Stdin)
	} else {
		raw, err = render(args[0], args[1:], set)
	}
	if err != nil {
		return err
	}
	all, err := check(raw)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(all)
}

// render lints a chart, and returns what it makes with these values.
func render(dir string, files []string, set string) ([]byte, error) {
	given := map[string]any{}
	for _, file := range files {
		values, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		given = chartutil.CoalesceTables(values, given) // the later file wins
	}
	if err := strvals.ParseInto(set, given); err != nil {
		return nil, err
	}
	var wrong error
	for _, m := range lint.All(dir, given, namespace, true).Messages {
		if m.Severity >= support.WarningSev {
			wrong = errors.Join(wrong, m)
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	chart, err := loader.Load(dir)
	if err != nil {
		return nil, err
	}
	values, err := chartutil.ToRenderValues(chart, given, chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, nil)
	if err != nil {
		return nil, err
	}
	made, err := engine.Render(chart, values)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(made)) {
		if filepath.Ext(name) == ".yaml" {
			all.WriteString("\n---\n" + made[name])
		}
	}
	return all.Bytes(), nil
}

// check reads manifests, and refuses fields that their kinds do not have.
func check(raw []byte) ([]any, error) {
	all := []any{}
	for i, one := range bytes.Split(append([]byte("\n"), raw...), []byte("\n---")) {
		var head struct {
			APIVersion string `json:"apiVersion"`
			Kind       string `json:"kind"`
		}
		if err := yaml.Unmarshal(one, &head); err != nil {
			return nil, fmt.Errorf("manifest %d: %w", i, err)
		}
		if head.Kind == "" { // only comments
			continue
		}
		made, ok := kinds[head.APIVersion+" "+head.Kind]
		if !ok {
			return nil, fmt.Errorf("manifest %d: there is no %s %s", i, head.APIVersion, head.Kind)
		}
		object := made()
		if err := yaml.UnmarshalStrict(one, object); err != nil {
			return nil, fmt.Errorf("manifest %d, a %s: %w", i, head.Kind, err)
		}
		all = append(all, object)
	}
	return all, nil
}
