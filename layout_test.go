package sluice_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

const module = "github.com/sluicehq/sluice"

// layers lists the layers from the top down. Each path includes the packages below it. Packages outside of all layers,
// such as internal/testkit, import none of the layers.
var layers = [][]string{
	{"/cmd/sluice", "/cmd/e2e", "/cmd/internal/histories"},
	{"/cmd/internal/cli"},
	{"/cmd/internal/server"},
	{"/cmd/internal/command", "/examples"},
	{"/cmd/internal/console"},
	{"/cmd/internal/adminapi", "/cmd/internal/access", "/cmd/internal/apitest"},
	{"/cmd/internal/control"},
	{"/cmd/internal/source", "/cmd/internal/door", "/cmd/internal/limitpage", "/cmd/internal/nginxlimits", "/cmd/internal/openapi", "/cmd/internal/replay", "/cmd/internal/recent", "/cmd/internal/incident", "/cmd/internal/schemagen"},
	{"/httplimit", "/grpclimit", "/client", "/promlimit", "/otellimit", "/telemetry", "/answer", "/policyfile", "/internal/policytest"},
	{"/policy"},
	{"/memory", "/redisstore", "/failover", "/lease", "/synced", "/stores", "/storetest", "/internal/share", "/internal/plantest", "/internal/faultstore"},
	{""},
	{"/internal/adaptive", "/internal/turns", "/kernel"},
}

// layer returns the index of a package's layer, or len(layers) if it is in none.
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

type listed struct {
	ImportPath string
	Imports    []string
	Deps       []string
	Standard   bool
}

// list returns the packages of all modules of the workspace and their dependencies, by import path.
func list(t *testing.T) map[string]listed {
	t.Helper()
	testkit.Root() // the result depends on the files of all modules
	out := run(t, "go", "list", "-deps", "-json=ImportPath,Imports,Deps,Standard", "work")
	all := map[string]listed{}
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all[p.ImportPath] = p
	}
	if len(all) < 50 || all[module].ImportPath == "" || all[module+"/cmd/sluice"].ImportPath == "" {
		t.Fatalf("go list returned %d packages; the library and the program must be among them", len(all))
	}
	return all
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return string(out)
}

// A package imports only packages of its own layer and of the layers below it.
func TestLayers(t *testing.T) {
	for path, p := range list(t) {
		for _, i := range p.Imports {
			if strings.HasPrefix(path, module) && strings.HasPrefix(i, module) && layer(i) < layer(path) {
				t.Errorf("%s imports %s, which is a layer above it", path, i)
			}
		}
	}
}

// The packages that most programs import depend only on each other and on the standard library.
func TestLinksNothingForeign(t *testing.T) {
	all := list(t)
	for _, p := range []string{"", "/kernel", "/memory", "/policy", "/answer", "/httplimit", "/client", "/storetest"} {
		for _, d := range all[module+p].Deps {
			if !all[d].Standard && !strings.HasPrefix(d, module) {
				t.Errorf("%s depends on %s", module+p, d)
			}
		}
	}
}

// The library's module graph does not contain the program's dependencies, so programs that import the library do not
// get them either.
func TestModuleGraph(t *testing.T) {
	graph := exec.CommandContext(t.Context(), "go", "list", "-m", "all")
	graph.Env = append(os.Environ(), "GOWORK=off")
	out, err := graph.Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := strings.Fields(string(out))
	for _, program := range []string{"chromedp", "sqlite", "jackc/pgx", "spf13/cobra", "otel/sdk", "exporters/otlp", "gonum"} {
		if i := slices.IndexFunc(modules, func(m string) bool { return strings.Contains(m, program) }); i >= 0 {
			t.Errorf("the library's module graph contains %s", modules[i])
		}
	}
	if !slices.Contains(modules, "github.com/redis/rueidis") {
		t.Errorf("the module graph lacks rueidis: %v", modules)
	}
}

// The workspace, and with it the tests, uses the versions of modules that cmd/go.mod requires: "go install" builds the
// program with these.
func TestVersionsOfTheProgram(t *testing.T) {
	text, err := os.ReadFile("cmd/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	chosen := strings.Split(run(t, "go", "list", "-m", "all"), "\n")
	required := regexp.MustCompile(`(?m)^\t(\S+ v\S+)`).FindAllStringSubmatch(string(text), -1)
	if len(required) < 20 {
		t.Fatalf("cmd/go.mod requires only %d modules", len(required))
	}
	for _, m := range required {
		if !strings.HasPrefix(m[1], module) && !slices.Contains(chosen, m[1]) {
			t.Errorf("cmd/go.mod requires %s, and the workspace has another version: run scripts/tidy after \"go get\" in cmd", m[1])
		}
	}
}
