package cli

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// Build has the release and the commit that the program was built from. Both are empty unless the build sets them.
type Build struct{ Release, Commit string }

// licences has the licenses of all linked dependencies.
//
//go:embed licences.txt
var licences string

func versionCommand(b Build) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, or the licenses of the dependencies",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text := b.line() + "\n"
			if all {
				text = licences
			}
			_, err := fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().BoolVar(&all, "licenses", false, "print the licenses of all linked dependencies instead of the version")
	return c
}

// line returns the output of version and --version.
func (b Build) line() string {
	return fmt.Sprintf("sluice %s commit %s %s/%s %s", b.version(), b.commit(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// version returns the release, or else the version of the module, which may be "devel".
func (b Build) version() string {
	version := b.Release
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, strings.Trim(info.Main.Version, "()"))
	}
	return cmp.Or(version, "unknown")
}

// commit returns the first 12 characters of the commit's hash.
func (b Build) commit() string {
	hash := b.Commit
	if info, ok := debug.ReadBuildInfo(); ok && hash == "" {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				hash = s.Value
			}
		}
	}
	hash = cmp.Or(hash, "unknown")
	return hash[:min(12, len(hash))]
}
