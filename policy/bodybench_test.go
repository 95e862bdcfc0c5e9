package policy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
)

// conversation returns the body of a request to a language model, as agents send it: messages of about size bytes in
// total, with code, URLs, forms and images.
func conversation(t testing.TB, size int) []byte {
	t.Helper()
	const code = "for (i = 0; model = next(); i++) {\n\tif a && b {\n\t\treturn \"x=1&model=other&y=\\u00e9\" // 50% <of> all\n\t}\n}\n" +
		"curl 'https://example.com/v1?stream=false&model=small&method=ping;name=x' -d 'model=a&method=b'\n"
	image := "data:image/png;base64," + strings.Repeat("iVBORw0KGgo+/AAANSUhEUgAA", 400) + "=="
	var messages []any
	for n := 0; n < size; {
		text := fmt.Sprintf("%d: %s", len(messages), strings.Repeat(code, 8))
		if len(messages)%10 == 0 {
			text = image
		}
		messages = append(messages, map[string]any{"role": "user", "content": []any{map[string]any{"type": "text", "text": text}}})
		n += len(text) + len(text)/8
	}
	bias := map[string]int{}
	for i := range 1024 {
		bias[fmt.Sprint(i)] = -100
	}
	body, err := json.Marshal(map[string]any{
		"model": "gpt-5-mini", "stream": true, "max_tokens": 1000, "messages": messages, "logit_bias": bias, "metadata": map[string]any{"model": "x", "user": "u=1&v=2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

const conversationRules = `rules:
  - {name: model, match: POST /v1/, body: {model: gpt-*, stream: true}, key: [api_key, "body:model"], limit: 1000000000/second}
  - {name: other, match: POST /v1/, body: {model: claude-*}, key: ["body:user_name"], limit: 1000000000/second}`

func post(body []byte, header http.Header) *Request {
	return &Request{
		Method: "POST", Host: "api.test", Path: "/v1/chat/completions", Peer: netip.AddrFrom4([4]byte{192, 0, 2, 1}), Header: header,
		Body: func(limit int64) ([]byte, error) {
			if int64(len(body)) > limit {
				return nil, nil
			}
			return body, nil
		},
	}
}

// Bodies of agents are read, however long they are and whatever text they contain.
func TestConversation(t *testing.T) {
	t.Parallel()
	e := engine(t, conversationRules)
	for _, size := range []int{1 << 10, 100 << 10, 1 << 20, 7 << 20} {
		r := post(conversation(t, size), http.Header{"Content-Type": {jsonType}})
		if d := e.Decide(t.Context(), r); !d.Allowed || len(d.Results) != 1 || d.Results[0].Rule != "model" {
			t.Errorf("%d bytes: %+v", size, d)
		}
	}
}

// BenchmarkConversation decides about a request with a body of a megabyte.
func BenchmarkConversation(b *testing.B) {
	e := engine(b, conversationRules)
	body := conversation(b, 1<<20)
	r := post(body, http.Header{"Content-Type": {jsonType}})
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		e.Decide(b.Context(), r)
	}
}

// BenchmarkLooseBody decides by a field that is also searched for in the texts of a JSON object of a megabyte. The
// texts are expensive to compare.
func BenchmarkLooseBody(b *testing.B) {
	e := engine(b, `rules: [{name: account, match: POST /v1/, key: ["body:user_name"], limit: 1000000000/second}]`)
	for name, unit := range map[string]string{
		"pairs": "&a=", "similar": "&u.s.e.r=", "near": "&user_nam=x", "escaped": "&%75ser%5fnam=", "empty": "&user_name=&", "equals": "=", "separators": ";&",
		"marks": "&" + strings.Repeat(".", 1000) + "=", "letters": "&u" + strings.Repeat("[u", 500) + "=", "conversation": "",
	} {
		body := []byte(repeat(`{"user_name":"alice","text":"`, unit+"x", `"}`, 1<<20))
		if unit == "" {
			body = conversation(b, 1<<20)
		}
		b.Run(name, func(b *testing.B) {
			r := post(body, http.Header{"Content-Type": {jsonType}})
			for b.Loop() {
				e.Decide(b.Context(), r)
			}
		})
	}
}
