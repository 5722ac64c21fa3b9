// Command chart reads manifests of Kubernetes on standard input, refuses fields that their kinds do
// not have, and prints them as one JSON array.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	"sigs.k8s.io/yaml"
)

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
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	raw, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	all, err := check(raw)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(all)
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
