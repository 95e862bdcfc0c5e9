package checkapi

import (
	_ "embed" // for openAPI
	"net/http"
)

//go:embed openapi.json
var openAPI []byte

func document(w http.ResponseWriter, r *http.Request) *problem {
	if r.Method != http.MethodGet {
		return notAllowed(r.Method, http.MethodGet)
	}
	h := w.Header()
	h.Set("Content-Type", jsonType)
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(openAPI)
	return nil
}
