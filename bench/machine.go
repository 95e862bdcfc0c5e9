package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
)

// compares has the modules of which the report shows the versions.
var compares = []string{
	"golang.org/x/time", "github.com/sethvargo/go-limiter", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "github.com/go-chi/httprate", "github.com/didip/tollbooth/v8",
	"go.uber.org/ratelimit", "github.com/go-redis/redis_rate/v10", "github.com/redis/go-redis/v9",
	"github.com/redis/rueidis", "github.com/caddyserver/caddy/v2", "github.com/mholt/caddy-ratelimit",
	"github.com/envoyproxy/ratelimit", "google.golang.org/grpc",
}

// machine describes the machine on which this runs.
func machine() string {
	release, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	kernel, _, _ := strings.Cut(strings.TrimSpace(string(release)), "-")
	return fmt.Sprintf(`| | |
|---|---|
| processor | %s, %d in use |
| memory | %s |
| system | %s/%s, Linux %s |
| Go | %s |
| servers | %s |
| modules | %s |`,
		field("/proc/cpuinfo", "model name"), runtime.NumCPU(), memoryOf(),
		runtime.GOOS, runtime.GOARCH, kernel, runtime.Version(),
		strings.Join(servers(), ", "), strings.Join(modules(), ", "))
}

func memoryOf() string {
	kb, err := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%.0f GiB", float64(kb)/(1<<20))
}

// field returns the value in the first line of a file that has the given name.
func field(file, name string) string {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown"
}

// servers returns the versions of the other programs that are measured.
func servers() (all []string) {
	for _, c := range [][]string{{"redis-server", "--version"}, {"valgrind", "--version"}, {installed("nginx"), "-v"}, {installed("haproxy"), "-v"}} {
		out, err := exec.Command(c[0], c[1:]...).CombinedOutput()
		if err != nil {
			continue
		}
		text, _, _ := strings.Cut(string(out), "\n")
		text, _, _ = strings.Cut(text, " sha=")
		all = append(all, text)
	}
	return all
}

// modules returns the versions of the rivals, both in this program and in the modules for other rivals.
func modules() (all []string) {
	var deps []*debug.Module
	if info, ok := debug.ReadBuildInfo(); ok {
		deps = info.Deps
	}
	for _, built := range []string{"caddy", "ratelimit"} {
		if info, err := buildinfo.ReadFile(filepath.Join(os.Getenv(binDir), built)); err == nil {
			deps = append(deps, info.Deps...)
		}
	}
	for _, d := range deps {
		if text := d.Path + " " + d.Version; slices.Contains(compares, d.Path) && !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
