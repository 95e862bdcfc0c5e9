//go:build tools

// Package traefik pins the version of Traefik that "make traefik" builds, in a separate module.
package traefik

import _ "github.com/traefik/traefik/v3/cmd/traefik"
