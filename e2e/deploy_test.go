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

// documents decodes each document of a file of deploy/ into a T. A key that stands there twice is an
// error.
func documents[T any](t *testing.T, name string) (all []T) {
	t.Helper()
	for decoder := yaml.NewDecoder(strings.NewReader(deployed(t, name))); ; {
		var one T
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

// instead are other places of what a command line of deploy/ names: ports that are free, and a server
// that is away.
var instead = strings.NewReplacer("=:8080", "=127.0.0.1:0", "=:9090", "=127.0.0.1:0", "redis:6379", "127.0.0.1:1")

// runs runs a command line of deploy/ with other ports, and the files of mounted where they are.
func runs(t *testing.T, args []string, mounted map[string]string) *gateway {
	t.Helper()
	if len(args) == 0 || args[0] != "serve" {
		t.Fatalf("%q does not serve", args)
	}
	has := func(flag string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) })
	}
	if has("--admin=:") && !has("--admin-tokens=") {
		t.Errorf("%q opens the admin API to everybody, which is refused", args)
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
	type service struct {
		Build           struct{ Context, Dockerfile string }
		Command         []string
		Environment     map[string]string
		Volumes, Ports  []string
		Image           string
		DependsOn       map[string]any `yaml:"depends_on"`
		StopGracePeriod string         `yaml:"stop_grace_period"`
	}
	file := documents[struct {
		Services map[string]service
		Volumes  map[string]any
	}](t, "docker/compose.yaml")[0]
	const dir = "../deploy/docker"
	for name, s := range file.Services {
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, named := file.Volumes[source]; named {
				continue
			}
			if _, err := os.Stat(filepath.Join(dir, source)); err != nil {
				t.Errorf("%s mounts %s: %v", name, v, err)
			}
		}
		for other := range s.DependsOn {
			if file.Services[other].Image == "" {
				t.Errorf("%s depends on %s, which is not there", name, other)
			}
		}
	}
	s := file.Services["sluice"]
	if _, err := os.Stat(filepath.Join(dir, s.Build.Context, s.Build.Dockerfile)); err != nil {
		t.Error(err)
	}
	mounted := map[string]string{}
	for _, v := range s.Volumes {
		parts := strings.Split(v, ":")
		mounted[parts[1]] = filepath.Join(dir, parts[0])
	}
	// What the environment sets is what the program knows.
	for name := range s.Environment {
		if name != "SLUICE_RULES" {
			t.Errorf("%s is not tried here", name)
		}
	}
	g := runs(t, append(s.Command, "--rules=sqlite:"+filepath.Join(t.TempDir(), "rules.db")), mounted)

	// Prometheus asks by the name of the service.
	scrape := documents[struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}](t, "docker/prometheus.yaml")[0]
	target := scrape.ScrapeConfigs[0].StaticConfigs[0].Targets[0]
	r := request(t, "GET", g.Admin+"/metrics", "")
	r.Host = target
	if resp, body := do(t, r); resp.StatusCode != http.StatusOK || target != "sluice:9090" {
		t.Errorf("Prometheus gets %s of %s: %s", resp.Status, target, body)
	}
	dashboards := documents[struct {
		Providers []struct{ Options struct{ Path string } }
	}](t, "docker/grafana-dashboards.yaml")[0]
	if path := dashboards.Providers[0].Options.Path; !slices.ContainsFunc(file.Services["grafana"].Volumes, func(v string) bool { return strings.Contains(v, ":"+path+"/") }) {
		t.Errorf("nothing is mounted below %s", path)
	}
	documents[map[string]any](t, "docker/grafana-datasource.yaml")
}

// The health check and the command of the image are the program's.
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

func TestKubernetes(t *testing.T) {
	t.Parallel()
	type probe struct {
		HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
	}
	type container struct {
		Name  string
		Args  []string
		Ports []struct {
			Name          string
			ContainerPort int `yaml:"containerPort"`
		}
		ReadinessProbe probe `yaml:"readinessProbe"`
		LivenessProbe  probe `yaml:"livenessProbe"`
		Env            []struct {
			Name      string
			ValueFrom struct {
				SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
			} `yaml:"valueFrom"`
		}
		VolumeMounts []struct {
			Name      string
			MountPath string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	type object struct {
		Kind     string
		Metadata struct{ Name string }
		Data     map[string]string
		Spec     struct {
			Selector yaml.Node
			Ports    []struct {
				TargetPort string `yaml:"targetPort"`
			}
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					Containers []container
					Volumes    []struct {
						Name      string
						ConfigMap struct{ Name string } `yaml:"configMap"`
					}
				}
			}
		}
	}
	for _, name := range []string{"kubernetes/gateway.yaml", "kubernetes/sidecar.yaml"} {
		kinds := map[string]object{}
		for _, o := range documents[object](t, name) {
			kinds[o.Kind] = o
		}
		pod := kinds["Deployment"].Spec.Template
		i := slices.IndexFunc(pod.Spec.Containers, func(c container) bool { return c.Name == "sluice" })
		if i < 0 {
			t.Fatalf("%s has no container sluice", name)
		}
		c := pod.Spec.Containers[i]
		ports := map[string]int{}
		for _, p := range c.Ports {
			ports[p.Name] = p.ContainerPort
		}
		for port, flag := range map[string]string{"http": "--proxy", "admin": "--admin"} {
			if arg := flag + "=:" + strconv.Itoa(ports[port]); !slices.Contains(c.Args, arg) {
				t.Errorf("%s: the port %s is not that of %s: %q", name, port, arg, c.Args)
			}
		}

		// The Service finds the pods and their port.
		var selector map[string]string
		service := kinds["Service"]
		if err := service.Spec.Selector.Decode(&selector); err != nil {
			t.Fatal(err)
		}
		for key, value := range selector {
			if pod.Metadata.Labels[key] != value {
				t.Errorf("%s: the Service selects %s: %s, and pods have %q", name, key, value, pod.Metadata.Labels)
			}
		}
		if p := kinds["Service"].Spec.Ports[0].TargetPort; p != "http" || len(selector) == 0 {
			t.Errorf("%s: the Service leads to the port %q of %q", name, p, selector)
		}

		// The files of the ConfigMap are where they are mounted.
		files := t.TempDir()
		for file, content := range kinds["ConfigMap"].Data {
			overwrite(t, filepath.Join(files, file), content)
		}
		mount, volume := c.VolumeMounts[0], pod.Spec.Volumes[0]
		if mount.Name != volume.Name || volume.ConfigMap.Name != kinds["ConfigMap"].Metadata.Name {
			t.Errorf("%s: %+v is not %+v", name, mount, volume)
		}
		// The store is in a Secret, since its URL has a password.
		if len(c.Env) != 1 || c.Env[0].Name != "SLUICE_STORE" || c.Env[0].ValueFrom.SecretKeyRef.Name == "" || c.Env[0].ValueFrom.SecretKeyRef.Key == "" {
			t.Errorf("%s: the environment is %+v", name, c.Env)
		}
		g := runs(t, append(c.Args, "--store=redis://redis:6379"), map[string]string{mount.MountPath: files})
		for _, p := range []probe{c.ReadinessProbe, c.LivenessProbe} {
			if status, body := get(t, g.Admin+p.HTTPGet.Path); p.HTTPGet.Port != "admin" || status != http.StatusOK {
				t.Errorf("%s: %+v: %d %s", name, p, status, body)
			}
		}
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" {
			t.Errorf("%s: probes at %+v and %+v", name, c.ReadinessProbe, c.LivenessProbe)
		}
	}
}
