package check

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartlint "helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	strict "sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the manifests that the chart renders")

const chart = "../helm/sluice"

// charts are renderings of the chart: the values, and the file with the manifests. The files in ../kubernetes are for
// users without Helm, and cmd/e2e runs them.
var charts = []struct{ file, release, values string }{
	{"../kubernetes/gateway.yaml", "sluice", `
store: {existingSecret: sluice}`},
	{"../kubernetes/service.yaml", "sluice", `
mode: service
store: {existingSecret: sluice}`},
	{"../kubernetes/sidecar.yaml", "api", `
mode: sidecar
sidecar: {container: {image: "api:latest"}}
store: {existingSecret: sluice}`},
	{"testdata/helm/everything.yaml", "sluice", `
image: {digest: "sha256:0000000000000000000000000000000000000000000000000000000000000000"}
upstream: https://api.example.com
policy: "version: 1"
store: {existingSecret: redis, key: url}
rules: {existingSecret: "007"}
adminTokens: {existingSecret: "123", key: "1"}
args: [--strict-ready, --max-body=1MiB, --drain-timeout=60s]
autoscaling: {enabled: true, minReplicas: 3, maxReplicas: 30, cpu: 60}
podSpec: {terminationGracePeriodSeconds: 90, imagePullSecrets: [{name: registry}], tolerations: [{key: edge, operator: Exists}]}
service: {type: LoadBalancer, annotations: {example.com/zone: a}}
networkPolicy:
  enabled: true
  from: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]
  adminFrom: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]
serviceMonitor: {enabled: true, labels: {release: prometheus}}`},
	{"testdata/helm/integrations.yaml", "limits", `
mode: service
integrations: [spoe, resp, check]
doorTokens: {existingSecret: doors}
replicas: 1
topologyKeys: []
networkPolicy: {enabled: true}`},
	{"testdata/helm/container.yaml", "shop", `
mode: sidecar
sidecar:
  port: 8000
  container: {name: shop, image: "shop:1", env: [{name: PORT, value: "8000"}], lifecycle: {preStop: {exec: {command: [sleep, "20"]}}}}`},
}

// render returns the manifests of the chart in the order of its files, and its notes.
func render(release, values string) (manifests, notes string, err error) {
	c, err := loader.Load(chart)
	if err != nil {
		return "", "", err
	}
	var own map[string]any
	if err := strict.UnmarshalStrict([]byte(values), &own); err != nil {
		return "", "", err
	}
	settings, err := util.ToRenderValues(c, own, common.ReleaseOptions{Name: release, Namespace: "default", IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return "", "", err
	}
	files, err := engine.Render(c, settings)
	if err != nil {
		return "", "", err
	}
	var all []string
	const templates = "sluice/templates/"
	for _, name := range []string{"configmap", "deployment", "service", "poddisruptionbudget", "horizontalpodautoscaler", "networkpolicy", "servicemonitor"} {
		if text := strings.TrimSpace(files[templates+name+".yaml"]); text != "" {
			all = append(all, text+"\n")
		}
		delete(files, templates+name+".yaml")
	}
	for name := range files {
		if strings.HasSuffix(name, ".yaml") {
			return "", "", fmt.Errorf("%s is not read here: add it", name)
		}
	}
	return strings.Join(all, "---\n"), files[templates+"NOTES.txt"], nil
}

func TestChart(t *testing.T) {
	for _, tt := range charts {
		t.Run(filepath.Base(tt.file), func(t *testing.T) {
			text, _, err := render(tt.release, tt.values)
			if err != nil {
				t.Fatal(err)
			}
			if err := manifest([]byte(text)); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
			text = "# Rendered by deploy/helm/sluice: \"go test -run Chart -update\" in deploy/check writes it.\n" + text
			if *update {
				if err := os.WriteFile(tt.file, []byte(text), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			if golden, err := os.ReadFile(tt.file); err != nil || string(golden) != text {
				t.Errorf("the chart renders other manifests than %s has (%v): go test -run Chart -update\n%s", tt.file, err, text)
			}
		})
	}
}

func TestChartLint(t *testing.T) {
	for _, tt := range charts {
		var own map[string]any
		if err := strict.UnmarshalStrict([]byte(tt.values), &own); err != nil {
			t.Fatal(err)
		}
		for _, m := range chartlint.RunAll(chart, own, "default").Messages {
			t.Errorf("%s: %s", tt.file, m)
		}
	}
}

// Unknown values, and values that contradict each other, are rejected.
func TestChartRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"mode: proxy":                           "mode",
		"upstrem: http://api":                   "upstrem",
		"replicas: two":                         "replicas",
		"mode: sidecar":                         "image",
		"image: {digest: latest}":               "digest",
		"store: {secret: redis}":                "secret",
		"{mode: service, integrations: [http]}": "integrations",
		"{mode: service, integrations: []}":     "integrations",
		"service: {type: ExternalName}":         "type",
		"args: [strict-ready]":                  "args",
		"args: [--auth, nginx+id]":              "args",
		"podSpec: {volumes: []}":                "podSpec",
		"{mode: sidecar, sidecar: {port: 8080, container: {image: api}}}":   "port",
		"serviceMonitor: {interval: often}":                                 "interval",
		"autoscaling: {enabled: true, max: 3}":                              "max",
		"networkPolicy: {adminFrom: prometheus}":                            "adminFrom",
		"{networkPolicy: {enabled: true}, serviceMonitor: {enabled: true}}": "networkPolicy.adminFrom is empty",
	} {
		text, _, err := render("sluice", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s\n%s", values, err, want, text)
		}
	}
}

// A change of the policy starts new pods.
func TestChartPolicy(t *testing.T) {
	sum := func(policy string) string {
		text, _, err := render("sluice", "policy: \"version: 1 # "+policy+"\"")
		_, after, found := strings.Cut(text, "checksum/config: ")
		if err != nil || !found || !strings.Contains(text, "# "+policy) {
			t.Fatalf("%v\n%s", err, text)
		}
		sum, _, _ := strings.Cut(after, "\n")
		return sum
	}
	if a, b := sum("a"), sum("b"); a == b || a != sum("a") {
		t.Errorf("checksums of two policies: %s, %s", a, b)
	}
}

func TestChartNotes(t *testing.T) {
	const alone, open = "Each pod counts by itself", "Every pod that reaches these ports"
	for _, tt := range []struct {
		values    string
		has, lack []string
	}{
		{"{}", []string{"http://sluice.default", alone}, []string{open}},
		{"store: {existingSecret: redis}", []string{"http://sluice.default"}, []string{alone, open}},
		{"mode: service", []string{"check  port 8081", "grpc  port 8082", open}, nil},
		{"{mode: service, doorTokens: {existingSecret: a}}", []string{"check  port 8081", alone}, []string{open}},
	} {
		_, notes, err := render("sluice", tt.values)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range tt.has {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: %q is missing in\n%s", tt.values, text, notes)
			}
		}
		for _, text := range tt.lack {
			if strings.Contains(notes, text) {
				t.Errorf("%s: %q is in\n%s", tt.values, text, notes)
			}
		}
	}
}
