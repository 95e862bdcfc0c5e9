package main

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release and commit are what "make build" says that it builds.
var release, commit string

// licences are those of all that is linked in.
//
//go:embed licences.txt
var licences string

func versionCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the version, or the licences of the dependencies",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text := versionLine() + "\n"
			if all {
				text = licences
			}
			_, err := fmt.Fprint(c.OutOrStdout(), text)
			return err
		},
	}
	c.Flags().BoolVar(&all, "licenses", false, "print the licences of all linked dependencies instead of the version")
	return c
}

// versionLine is what version and --version print.
func versionLine() string {
	info, _ := debug.ReadBuildInfo()
	return fmt.Sprintf("sluice %s commit %s %s/%s %s", version(info), revision(info), runtime.GOOS, runtime.GOARCH, runtime.Version())
}

// version is that of the release or of the module, or the revision that it was built from.
func version(info *debug.BuildInfo) string {
	switch {
	case release != "":
		return release
	case info == nil:
		return "unknown"
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version
	}
	if r := revision(info); r != "unknown" {
		return "devel-" + r
	}
	return "devel"
}

// revision is the commit that it was built from.
func revision(info *debug.BuildInfo) string {
	full := commit
	if info != nil {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && full == "" {
				full = s.Value
			}
		}
	}
	if full == "" {
		return "unknown"
	}
	return full[:min(12, len(full))]
}
