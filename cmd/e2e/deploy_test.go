package e2e

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// documents decodes each document of a file of deploy/. A repeated key is an error.
func documents(t *testing.T, name string) (all []any) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(deployed(t, name))); ; {
		var one any
		err := decoder.Decode(&one)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, one)
	}
}

// at returns the value at a path of keys and indices, such as "spec.ports.0", if it is a T, and otherwise the zero
// value.
func at[T any](document any, path string) T {
	for key := range strings.SplitSeq(path, ".") {
		if list, ok := document.([]any); ok {
			i, err := strconv.Atoi(key)
			if err != nil || i >= len(list) {
				break
			}
			document = list[i]
			continue
		}
		object, _ := document.(map[string]any)
		document = object[key]
	}
	found, _ := document.(T)
	return found
}

// texts returns the list of texts at a path.
func texts(document any, path string) (all []string) {
	for _, one := range at[[]any](document, path) {
		all = append(all, one.(string))
	}
	return all
}

// instead replaces addresses in a command line of deploy/: ports by free ones, and Redis by a server that is down.
var instead = strings.NewReplacer("=:8080", "=127.0.0.1:0", "=:8081", "=127.0.0.1:0", "=:8082", "=127.0.0.1:0", "=:9090", "=127.0.0.1:0", "redis:6379", "127.0.0.1:1")

// runs starts the gateway with a command line of deploy/, on other ports. mounted has the files for the paths at which
// they are mounted.
func runs(t *testing.T, args []string, mounted map[string]string) *gateway {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("%q does not serve", args)
	}
	has := func(flag string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	}
	if has("--admin=:") && !has("--admin-tokens=") {
		t.Errorf("%q opens the admin API without tokens, which the gateway rejects", args)
	}
	var own []string
	for _, arg := range args[1:] {
		flag, value, _ := strings.Cut(instead.Replace(arg), "=")
		if strings.HasPrefix(value, "/") {
			for at, path := range mounted {
				if rest, found := strings.CutPrefix(value, at); found {
					value = path + rest
				}
			}
			if _, err := os.Stat(value); err != nil {
				t.Errorf("%s: %v", arg, err)
			}
		}
		own = append(own, flag+"="+value)
	}
	return serve(t, append(own, "--drain-delay=0s")...)
}

func TestCompose(t *testing.T) {
	t.Parallel()
	const dir = "../../deploy/docker"
	file := documents(t, "docker/compose.yaml")[0]
	services, volumes := at[map[string]any](file, "services"), at[map[string]any](file, "volumes")
	for name, s := range services {
		for _, v := range texts(s, "volumes") {
			source, _, _ := strings.Cut(v, ":")
			if _, named := volumes[source]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, source)); err != nil {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
		}
		for other := range at[map[string]any](s, "depends_on") {
			if at[string](services, other+".image") == "" {
				t.Errorf("%s depends on %s, which does not exist", name, other)
			}
		}
	}
	s := services["sluice"]
	if _, err := os.Stat(filepath.Join(dir, at[string](s, "build.context"), at[string](s, "build.dockerfile"))); err != nil {
		t.Error(err)
	}
	mounted := map[string]string{}
	for _, v := range texts(s, "volumes") {
		parts := strings.Split(v, ":")
		mounted[parts[1]] = filepath.Join(dir, parts[0])
	}
	// This test covers every variable of the environment.
	for name := range at[map[string]any](s, "environment") {
		if name != "SLUICE_RULES" {
			t.Errorf("this test does not cover %s", name)
		}
	}
	g := runs(t, append(texts(s, "command"), "--rules=sqlite:"+filepath.Join(t.TempDir(), "rules.db")), mounted)

	// Prometheus sends requests to the name of the service.
	target := at[string](documents(t, "docker/prometheus.yaml")[0], "scrape_configs.0.static_configs.0.targets.0")
	r := request(t, "GET", g.Admin+"/metrics", "")
	r.Host = target
	if resp, body := do(t, r); resp.StatusCode != http.StatusOK || target != "sluice:9090" {
		t.Errorf("Prometheus gets %s from %s: %s", resp.Status, target, body)
	}
	path := at[string](documents(t, "docker/grafana-dashboards.yaml")[0], "providers.0.options.path")
	if !slices.ContainsFunc(texts(services["grafana"], "volumes"), func(v string) bool { return strings.Contains(v, ":"+path+"/") }) {
		t.Errorf("nothing is mounted below %s", path)
	}
	documents(t, "docker/grafana-datasource.yaml")
}

// The command of the image starts the program, and its health check succeeds.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text := deployed(t, "docker/Dockerfile")
	list := func(instruction string) (words []string) {
		t.Helper()
		m := regexp.MustCompile(`(?m)^` + instruction + ` (\[.*\])$`).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("the Dockerfile has no %s", instruction)
		}
		if err := json.Unmarshal([]byte(m[1]), &words); err != nil {
			t.Fatal(err)
		}
		return words
	}
	check := list("HEALTHCHECK .* CMD")
	if entry := list("ENTRYPOINT"); len(entry) != 1 || check[0] != entry[0] || !strings.Contains(text, "/sluice "+entry[0]+"\n") {
		t.Errorf("the program is at %q, and its check at %q", entry, check[0])
	}
	g := runs(t, list("CMD"), nil)
	if code, stderr := run(t, append(check[1:], "--admin-url", g.Admin)...); code != 0 {
		t.Errorf("%q: exit code %d, %s", check, code, stderr)
	}
}

// The manifests start working gateways. deploy/check compares the manifests with the chart.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	for name, listens := range map[string][]string{"gateway": {"proxy"}, "sidecar": {"proxy"}, "service": {"check", "grpc"}} {
		kinds := map[string]any{}
		for _, o := range documents(t, "kubernetes/"+name+".yaml") {
			kinds[at[string](o, "kind")] = o
		}
		pod := at[map[string]any](kinds["Deployment"], "spec.template")
		containers := at[[]any](pod, "spec.containers")
		i := slices.IndexFunc(containers, func(c any) bool { return at[string](c, "name") == "sluice" })
		if i < 0 {
			t.Fatalf("%s has no container sluice", name)
		}
		c, args := containers[i], texts(containers[i], "args")
		ports := map[string]int{}
		for _, p := range at[[]any](c, "ports") {
			ports[at[string](p, "name")] = at[int](p, "containerPort")
		}

		// The Service selects the pods. Its ports are the ports of the flags.
		selector, labels := at[map[string]any](kinds["Service"], "spec.selector"), at[map[string]any](pod, "metadata.labels")
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("%s: the Service selects %s: %s, and pods have %q", name, key, value, labels)
			}
		}
		leads := at[[]any](kinds["Service"], "spec.ports")
		if len(leads) != len(listens) || len(selector) == 0 {
			t.Errorf("%s: the Service has the ports %v, and selects %q", name, leads, selector)
		}
		for i, flag := range append(slices.Clip(listens), "admin") {
			port := strings.Replace(flag, "proxy", "http", 1)
			if arg := "--" + flag + "=:" + strconv.Itoa(ports[port]); !slices.Contains(args, arg) {
				t.Errorf("%s: the port %s is not the port of %s: %q", name, port, arg, args)
			}
			if i < len(leads) && at[string](leads[i], "targetPort") != port {
				t.Errorf("%s: the Service leads to %v, not to %s", name, leads[i], port)
			}
		}

		// The ConfigMap is mounted.
		files := t.TempDir()
		for file, content := range at[map[string]any](kinds["ConfigMap"], "data") {
			overwrite(t, filepath.Join(files, file), content.(string))
		}
		if at[string](c, "volumeMounts.0.name") != at[string](pod, "spec.volumes.0.name") ||
			at[string](pod, "spec.volumes.0.projected.sources.0.configMap.name") != at[string](kinds["ConfigMap"], "metadata.name") {
			t.Errorf("%s: the ConfigMap is not mounted: %v", name, pod)
		}
		// The URL of the store is in a Secret, because it contains a password.
		if env := at[[]any](c, "env"); len(env) != 1 || at[string](env, "0.name") != "SLUICE_STORE" || at[string](env, "0.valueFrom.secretKeyRef.name") == "" || at[string](env, "0.valueFrom.secretKeyRef.key") == "" {
			t.Errorf("%s: the environment is %v", name, env)
		}
		g := runs(t, append(args, "--store=redis://redis:6379"), map[string]string{at[string](c, "volumeMounts.0.mountPath"): files})
		for probe, want := range map[string]string{"readinessProbe": "/readyz", "livenessProbe": "/healthz"} {
			path := at[string](c, probe+".httpGet.path")
			if status, body := get(t, g.Admin+path); path != want || at[string](c, probe+".httpGet.port") != "admin" || status != http.StatusOK {
				t.Errorf("%s: %s at %s: %d %s", name, probe, path, status, body)
			}
		}
	}
}
