// Command ratelimit is envoyproxy/ratelimit, unchanged. It is a separate Go module, because it needs other versions
// of dependencies.
package main

import (
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
)

func main() {
	r := runner.NewRunner(settings.NewSettings())
	r.Run()
}
