// Package examples contains policies to start from.
package examples

import _ "embed"

// API is the policy in api.yaml: layered limits for a public HTTP API.
//
//go:embed api.yaml
var API []byte
