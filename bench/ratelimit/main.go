// Command ratelimit is envoyproxy/ratelimit as it is. It is a module of its own, for it pins
// versions that the others do not.
package main

import (
	"github.com/envoyproxy/ratelimit/src/service_cmd/runner"
	"github.com/envoyproxy/ratelimit/src/settings"
)

func main() {
	r := runner.NewRunner(settings.NewSettings())
	r.Run()
}
