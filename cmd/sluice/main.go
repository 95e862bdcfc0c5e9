// Command sluice limits traffic. It is a gateway in front of an HTTP API, a decision service, and a set of tools
// for writing policies.
package main

import (
	"os"

	"github.com/sluicehq/sluice/cmd/internal/cli"
)

// Set by the build: -ldflags "-X main.release=… -X main.commit=…".
var release, commit string

func main() { os.Exit(cli.Main(cli.Build{Release: release, Commit: commit})) }
