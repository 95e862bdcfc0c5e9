package adminapi

import (
	_ "embed" // for go:embed
	"encoding/json"
)

//go:embed openapi.json
var openAPI []byte

func (a *API) openAPI(*call) (any, error) {
	return json.RawMessage(openAPI), nil
}
