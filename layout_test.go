package sluice_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluicehq/sluice"

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// list returns the packages of the module, and of everything that they need.
func list(t *testing.T) map[string]listed {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
	if len(all) < 50 || all[module].ImportPath == "" {
		t.Fatalf("go list gave %d packages, and not the module's own", len(all))
	}
	return all
}

// foreign returns the packages that p needs beyond the standard library and allowed.
func foreign(all map[string]listed, p string, allowed ...string) []string {
	var found []string
	for _, d := range all[p].Deps {
		if !all[d].Standard && !slices.Contains(allowed, strings.TrimPrefix(d, module)) {
			found = append(found, d)
		}
	}
	return found
}

// wires reports whether a package is there to put the others together: the fixture does so for tests.
func wires(path string) bool {
	return path == module+"/cmd/sluice" || path == module+"/internal/incident" || strings.HasPrefix(path, module+"/examples/")
}

// layers are the packages from the top down, each with those beneath its path. What is in none is a leaf,
// which needs no other package of the module above it.
var layers = [][]string{
	{"/cmd/sluice", "/examples", "/e2e"},
	{"/internal/dashboard"},
	{"/internal/adminapi", "/internal/access"},
	{"/internal/control"},
	{
		"/internal/source", "/internal/proxy", "/internal/checkapi", "/internal/checkgrpc", "/internal/rls", "/internal/resp", "/internal/spoe",
		"/internal/authrequest", "/internal/limitpage", "/internal/nginxlimits", "/internal/replay", "/internal/incident", "/internal/schemagen",
	},
	{"/httplimit", "/grpclimit", "/client", "/promlimit", "/otellimit", "/telemetry", "/answer", "/policyfile"},
	{"/policy"},
	{"/memory", "/redisstore", "/failover", "/lease", "/synced", "/stores", "/storetest", "/internal/plantest", "/internal/faultstore"},
	{""},
}

// layer returns how far down a package is.
func layer(path string) int {
	path = strings.TrimPrefix(path, module)
	for i, all := range layers {
		for _, p := range all {
			if path == p || p != "" && strings.HasPrefix(path, p+"/") {
				return i
			}
		}
	}
	return len(layers)
}

// A package imports packages of its own layer and of those below.
func TestLayers(t *testing.T) {
	for path, p := range list(t) {
		for _, i := range p.Imports {
			if strings.HasPrefix(path, module) && strings.HasPrefix(i, module) && layer(i) < layer(path) {
				t.Errorf("%s imports %s, which is a layer above it", path, i)
			}
		}
	}
}

// The rules of the house, as ARCHITECTURE.md states them.
func TestLayout(t *testing.T) {
	all := list(t)
	const yaml = "go.yaml.in/yaml/v3"
	inside := []string{"", "/internal/clientip", "/internal/spelling", "/policy/internal/fair", "/policy/internal/fields", "/policy/internal/fold", "/policy/internal/networks", "/policy/internal/paths", "/policy/internal/percent"}
	only := map[string][]string{
		"":            {},
		"/memory":     {""},
		"/storetest":  {"", "/internal/seed"},
		"/policy":     inside,
		"/policyfile": append([]string{yaml, "/policy", "/internal/printable"}, inside...),

		"/policyfile/follow": append([]string{yaml, "/policy", "/policyfile", "/internal/printable", "github.com/fsnotify/fsnotify", "github.com/fsnotify/fsnotify/internal", "golang.org/x/sys/unix"}, inside...),
		"/answer":            append([]string{"/policy"}, inside...),
		"/httplimit":         append([]string{"/policy", "/answer"}, inside...),
		"/client":            {"/internal/pace"},
		"/telemetry":         append([]string{"/policy", "/internal/printable"}, inside...),
	}
	for p, allowed := range only {
		if all[module+p].ImportPath == "" {
			t.Errorf("there is no package %q", module+p)
		}
		if found := foreign(all, module+p, allowed...); len(found) > 0 {
			t.Errorf("%s needs %v, and may only need the standard library and %q", module+p, found, allowed)
		}
	}

	// Each of these comes with one package, and with nothing else that a program may import.
	for library, with := range map[string]string{"google.golang.org/grpc": "/grpclimit", "github.com/prometheus/": "/promlimit"} {
		for path, p := range all {
			needs := slices.ContainsFunc(p.Deps, func(d string) bool { return strings.HasPrefix(d, library) })
			public := strings.HasPrefix(path, module) && !strings.Contains(path, "/internal/") && !wires(path)
			switch {
			case path == module+with && !needs:
				t.Errorf("%s does not need %s", path, library)
			case path != module+with && public && needs:
				t.Errorf("%s needs %s", path, library)
			}
		}
	}

	// OpenTelemetry comes with otellimit, and its SDK with the program.
	for path, p := range all {
		for _, i := range p.Imports {
			if strings.HasPrefix(path, module) && strings.HasPrefix(i, "go.opentelemetry.io/") && path != module+"/cmd/sluice" &&
				(path != module+"/otellimit" || strings.Contains(i, "/sdk") || strings.Contains(i, "/exporters")) {
				t.Errorf("%s imports %s: OpenTelemetry belongs in otellimit, and its SDK in cmd/sluice", path, i)
			}
		}
		if path == module+"/otellimit" {
			if found := slices.DeleteFunc(foreign(all, path, append([]string{"/policy", "/internal/printable"}, inside...)...), func(d string) bool {
				return strings.HasPrefix(d, "go.opentelemetry.io/") && !strings.Contains(d, "go.opentelemetry.io/otel/sdk") || strings.HasPrefix(d, "github.com/go-logr/") || strings.HasPrefix(d, "github.com/cespare/xxhash/")
			}); len(found) > 0 {
				t.Errorf("otellimit needs %v, and may only need the API of OpenTelemetry", found)
			}
		}
	}

	stores := []string{module + "/memory", module + "/redisstore", module + "/failover", module + "/lease", module + "/synced", module + "/stores"}
	drivers := []string{"github.com/redis/", "github.com/fsnotify/", "github.com/jackc/", "modernc.org/", "github.com/pressly/", "github.com/envoyproxy/"}
	mayDrive := []string{module + "/internal/rls", module + "/redisstore", module + "/policyfile/follow", module + "/internal/source", module + "/cmd/sluice"}
	for path, p := range all {
		own := strings.HasPrefix(path, module)
		for _, i := range p.Imports {
			if own && !slices.Contains(mayDrive, path) && slices.ContainsFunc(drivers, func(d string) bool { return strings.HasPrefix(i, d) }) {
				t.Errorf("%s imports %s: drivers belong in %v", path, i, mayDrive)
			}
			if !wires(path) && !slices.Contains(stores, path) && own && slices.Contains(stores, i) {
				t.Errorf("%s imports the store %s: only cmd/sluice does", path, i)
			}
			if slices.Contains(stores, path) && i == module+"/policy" {
				t.Errorf("%s imports policy: stores know nothing of it", path)
			}
		}
	}
}
