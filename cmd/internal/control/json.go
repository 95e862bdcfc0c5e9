package control

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// JSON returns v as JSON, without escapes for HTML.
func JSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("control: %T cannot be encoded as JSON: %v", v, err)) // all callers pass plain data
	}
	return b.Bytes()
}
