// Package check holds what is in deploy/ to what reads it: the linter of docker build, the loader of
// docker compose, and the types of Kubernetes. What it runs is tried in e2e.
package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// bases answers for every image with one that is empty, where "docker build" asks a registry.
type bases struct{}

func (bases) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	image, err := json.Marshal(ocispecs.Image{Platform: ocispecs.Platform{OS: "linux", Architecture: "amd64"}})
	return ref, digest.FromBytes(image), image, err
}

// lint says what "docker build --check" says.
func lint(t *testing.T, dockerfile []byte) (complaints []string) {
	t.Helper()
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", dockerfile)
	source.Definition = &llb.Definition{}
	found, err := dockerfile2llb.DockerfileLint(t.Context(), dockerfile, dockerfile2llb.ConvertOpt{
		SourceMap:      source,
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: "amd64"},
		MetaResolver:   bases{},
	})
	if err != nil {
		t.Fatal(err)
	}
	if found.Error != nil {
		complaints = append(complaints, line(&found.Error.Location)+found.Error.Message)
	}
	for _, w := range found.Warnings {
		complaints = append(complaints, line(w.Location)+w.RuleName+": "+w.Detail)
	}
	return complaints
}

func line(at *pb.Location) string {
	if len(at.GetRanges()) == 0 {
		return ""
	}
	return fmt.Sprintf("%d: ", at.GetRanges()[0].GetStart().GetLine())
}

func TestDockerfile(t *testing.T) {
	for _, complaint := range lint(t, read(t, "../docker/Dockerfile")) {
		t.Errorf("Dockerfile:%s", complaint)
	}
	for _, bad := range []string{"FROM scratch\nCMD /sluice\n", "from scratch as build\nCOPY . /\n", "FROM scratch\nRUM make\n", "FROM scratch\nENV API_TOKEN=a\n"} {
		if len(lint(t, []byte(bad))) == 0 {
			t.Errorf("nothing is said of %q", bad)
		}
	}
}

func compose(t *testing.T, path string) error {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{path}, cli.WithDotEnv, cli.WithResolvedPaths(true))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(t.Context())
	if err == nil && len(project.Services) == 0 {
		t.Errorf("%s has no services", path)
	}
	return err
}

func TestCompose(t *testing.T) {
	if err := compose(t, "../docker/compose.yaml"); err != nil {
		t.Error(err)
	}
	good := read(t, "../docker/compose.yaml")
	for _, change := range [][2]string{
		{"healthcheck: {test:", "healthcheck: {tset:"}, {"service_healthy", "service_is_healthy"},
		{`["redis:/data"]`, `["other:/data"]`}, {"postgres: {condition", "mysql: {condition"}, {"45s", "often"},
	} {
		bad := bytes.Replace(good, []byte(change[0]), []byte(change[1]), 1)
		if bytes.Equal(bad, good) {
			t.Errorf("the file has no %s", change[0])
		}
		path := filepath.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if compose(t, path) == nil {
			t.Errorf("nothing is said of %s", change[1])
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
