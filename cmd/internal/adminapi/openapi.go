package adminapi

import (
	_ "embed" // for what follows
	"encoding/json"
)

//go:embed openapi.json
var openAPI []byte

func (a *API) openAPI(c *call) (any, error) {
	if _, err := c.query(); err != nil {
		return nil, err
	}
	return json.RawMessage(openAPI), nil
}
