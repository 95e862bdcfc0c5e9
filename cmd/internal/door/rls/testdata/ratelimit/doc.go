// Package ratelimit is in a module of its own, with which "make ratelimit" builds envoyproxy/ratelimit for tests.
package ratelimit

import _ "github.com/envoyproxy/ratelimit/src/service_cmd/runner"
