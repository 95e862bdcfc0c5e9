package control

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// JSON returns v as JSON in which "<" is "<".
func JSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(fmt.Sprintf("control: %T is no JSON: %v", v, err)) // only plain data gets here
	}
	return b.Bytes()
}

// hasNUL reports whether a text in JSON has a U+0000.
func hasNUL(data []byte) bool {
	if !bytes.Contains(data, []byte(`\u0000`)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok && strings.ContainsRune(text, 0) {
			return true
		}
	}
}
