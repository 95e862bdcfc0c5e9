// Package examples holds policies to start from.
package examples

import _ "embed"

// API is api.yaml: layered limits for a public HTTP API.
//
//go:embed api.yaml
var API []byte
