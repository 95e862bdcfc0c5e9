package check

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
	ocispecs "github.com/opencontainers/image-spec/specs-go/v1"
)

// bases resolves every base image to an empty one, in place of a registry.
type bases struct{}

func (bases) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	image, err := json.Marshal(ocispecs.Image{Platform: ocispecs.Platform{OS: "linux", Architecture: "amd64"}})
	return ref, digest.FromBytes(image), image, err
}

// lint returns the warnings of "docker build --check".
func lint(ctx context.Context, dockerfile []byte) (complaints []string, err error) {
	source := llb.NewSourceMap(nil, "Dockerfile", "Dockerfile", dockerfile)
	source.Definition = &llb.Definition{}
	found, err := dockerfile2llb.DockerfileLint(ctx, dockerfile, dockerfile2llb.ConvertOpt{
		SourceMap:      source,
		TargetPlatform: &ocispecs.Platform{OS: "linux", Architecture: "amd64"},
		MetaResolver:   bases{},
	})
	if err != nil {
		return nil, err
	}
	if found.Error != nil {
		complaints = append(complaints, line(&found.Error.Location)+found.Error.Message)
	}
	for _, w := range found.Warnings {
		complaints = append(complaints, line(w.Location)+w.RuleName+": "+w.Detail)
	}
	return complaints, nil
}

func line(at *pb.Location) string {
	if len(at.GetRanges()) == 0 {
		return ""
	}
	return fmt.Sprintf("%d: ", at.GetRanges()[0].GetStart().GetLine())
}

// compose loads a file as docker compose does.
func compose(ctx context.Context, path string) error {
	options, err := cli.NewProjectOptions([]string{path}, cli.WithDotEnv, cli.WithResolvedPaths(true))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(ctx)
	if err == nil && len(project.Services) == 0 {
		return fmt.Errorf("%s has no services", path)
	}
	return err
}
