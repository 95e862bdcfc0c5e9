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

// Build is what the program was built from, if its build sets that.
type Build struct{ Release, Commit string }

// licences are those of all linked dependencies.
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

// line is the output of version and --version.
func (b Build) line() string {
	return fmt.Sprintf("sluice %s commit %s %s/%s %s", b.version(), b.commit(), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// version returns the release, or the version of the module: "devel" if the build does not know it.
func (b Build) version() string {
	version := b.Release
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(version, strings.Trim(info.Main.Version, "()"))
	}
	return cmp.Or(version, "unknown")
}

// commit returns the start of the commit's hash.
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
