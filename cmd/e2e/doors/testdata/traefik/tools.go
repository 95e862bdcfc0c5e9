//go:build tools

// Package traefik pins the Traefik that "make traefik" builds, in a module of its own.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
