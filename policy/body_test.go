package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy/internal/parts"
)

// FuzzBodyCondition compares conditions with the values that programs read from the same object by encoding/json. A
// condition may be doubtful, but otherwise it is right for all of these values.
func FuzzBodyCondition(f *testing.F) {
	for _, s := range []string{
		`{"model":"gpt-5"}`, `{"model":"GPT-5-mini","stream":true}`, `{"model":"other"}`, `{"Model":"gpt-5"}`, `{"model":"x","model":"gpt-5"}`, `{"model":null}`,
		`{"mod\u0065l":"gpt-5"}`, `{"model":"\ud800"}`, `{"model":["gpt-5"]}`, `{"model":12,"a":"&model=gpt-5"}`, `{"metadata":{"model":"gpt-5"}}`, `{"model.x":"gpt-5"}`,
		`{"a":"\ud800","model":"gpt-5"}`, ` {"model" : "gpt-5" , "messages":[{"model":"x"}]} `, `{"model":"\u0000gpt"}`, `{"user_name":"gpt-5","userName":"x"}`, `{"user_name":"gpt-5","a":";user_name=x;"}`,
	} {
		f.Add([]byte(s))
	}
	conditions := make([]bodyCondition, 0, 2)
	for _, name := range []string{"model", "user_name"} {
		p, err := parts.Parse("body:" + name)
		if err != nil {
			f.Fatal(err)
		}
		conditions = append(conditions, bodyCondition{part: p, value: "gpt", prefix: true})
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var x parts.Reader
		*x.Reset() = parts.Request{
			Header: http.Header{"Content-Type": {jsonType}},
			Body:   func(int64) ([]byte, error) { return bytes.Clone(data), nil },
		}
		for i, readings := range [2][]any{} {
			b := &conditions[i]
			name := strings.TrimPrefix(b.part.String(), "body:")
			v := b.check(&x)
			if readings = programs(data, name); len(readings) == 0 && v != doubtful && len(bytes.TrimSpace(data)) > 0 && !looksLikeForm(data) {
				t.Fatalf("%q is not an object, and the condition on %s is %d", data, name, v)
			}
			for _, r := range readings {
				text := textOf(r)
				want := strings.HasPrefix(b.part.Canonical(text), b.value) && text != ""
				if v == meets && text != "" && !want || v == fails && want {
					t.Fatalf("%q: a program reads %q as %s, and the condition is %d", data, text, name, v)
				}
			}
		}
	})
}

func looksLikeForm(data []byte) bool { return !bytes.ContainsAny(data, "{[") }

// programs returns the values that programs read by a name: by the exact name, and by a name that may differ in case.
func programs(data []byte, name string) (all []any) {
	var exact map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&exact) != nil || d.More() || exact == nil || !json.Valid(data) {
		return nil
	}
	var loose struct {
		Model    any `json:"model"`
		UserName any `json:"user_name"`
	}
	d = json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if d.Decode(&loose) != nil {
		return nil
	}
	return []any{exact[name], map[string]any{"model": loose.Model, "user_name": loose.UserName}[name]}
}

func textOf(v any) string {
	switch v.(type) {
	case string, json.Number, bool:
		return fmt.Sprint(v)
	}
	return ""
}
