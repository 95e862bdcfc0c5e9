// Package ratelimit is a module of its own, so that tests can build envoyproxy/ratelimit: "make
// ratelimit".
package ratelimit

import _ "github.com/envoyproxy/ratelimit/src/service_cmd/runner"
