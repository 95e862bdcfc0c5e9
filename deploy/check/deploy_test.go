package check

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDockerfile(t *testing.T) {
	complaints, err := lint(t.Context(), read(t, "../docker/Dockerfile"))
	if err != nil || len(complaints) > 0 {
		t.Errorf("%q, %v", complaints, err)
	}
	for _, bad := range []string{"FROM scratch\nCMD /sluice\n", "from scratch as build\nCOPY . /\n", "FROM scratch\nRUM make\n", "FROM scratch\nENV API_TOKEN=a\n"} {
		if complaints, err := lint(t.Context(), []byte(bad)); err != nil || len(complaints) == 0 {
			t.Errorf("%q: no complaints, %v", bad, err)
		}
	}
}

// refuses checks that a file is accepted, and rejected after any one of the changes.
func refuses(t *testing.T, file string, check func(path string) error, changes [][2]string) {
	t.Helper()
	good := read(t, file)
	if err := check(file); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	for _, change := range changes {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, good) {
			t.Errorf("%s has no %s", file, change[0])
		}
		path := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if check(path) == nil {
			t.Errorf("%s in place of %s is accepted", change[1], change[0])
		}
	}
}

func TestCompose(t *testing.T) {
	refuses(t, "../docker/compose.yaml", func(path string) error { return compose(t.Context(), path) }, [][2]string{
		{"healthcheck: {test:", "healthcheck: {tset:"}, {"service_healthy", "service_is_healthy"},
		{`["redis:/data"]`, `["other:/data"]`}, {"postgres: {condition", "mysql: {condition"}, {"45s", "often"},
	})
}

func TestKubernetes(t *testing.T) {
	check := func(path string) error { return manifest(read(t, path)) }
	refuses(t, "../kubernetes/gateway.yaml", check, [][2]string{
		{"readinessProbe:", "readynessProbe:"}, {"memory: 512Mi", "memory: 512MB"}, {"memory: 512Mi", "memory: 64Mi"},
		{"replicas: 2", "replicas: two"}, {"port: admin}, periodSeconds: 2}", "port: amdin}, periodSeconds: 2}"},
		{"{name: config, mountPath", "{name: other, mountPath"}, {"matchLabels:\n      app.kubernetes.io/name: sluice", "matchLabels:\n      app.kubernetes.io/name: other"},
		{"  name: sluice\n", "  name: Sluice\n"}, {"apiVersion: apps/v1", "apiVersion: apps/v1beta1"},
		{"replicas: 2", "replicas: 2\n  replicas: 3"},
	})
}

// Actions and base images are pinned by digest, so the build of a release does not change by itself.
func TestPinned(t *testing.T) {
	workflows, err := filepath.Glob("../../.github/workflows/*.yaml")
	if err != nil || len(workflows) == 0 {
		t.Fatal(workflows, err)
	}
	action := regexp.MustCompile(`^uses: (\./\S+|\S+@[0-9a-f]{40} # v\d+\.\d+\.\d+)$`)
	image := regexp.MustCompile(`^FROM .*@sha256:[0-9a-f]{64}( AS \w+)?$`)
	for _, file := range append(workflows, "../docker/Dockerfile") {
		for line := range strings.Lines(string(read(t, file))) {
			line = strings.TrimPrefix(strings.TrimSpace(line), "- ")
			if strings.HasPrefix(line, "uses: ") && !action.MatchString(line) || strings.HasPrefix(line, "FROM ") && !image.MatchString(line) {
				t.Errorf("%s: not pinned: %s", file, line)
			}
		}
	}
}
