package httplimit

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestUsageAskedOfOddBodies(t *testing.T) {
	for _, one := range []struct{ path, typ, body string }{
		{"/v1/completions", "application/x-www-form-urlencoded", "stream=true&prompt=hi"},
		{"/v1/completions?stream=true", "application/json", "{}"},
		{"/v1/completions?stream=true", "application/json", `{"model":"m"}`},
		{"/v1/completions", "multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--b--\r\n"},
		{"/v1/completions?stream=true", "", ""},
	} {
		url, _ := model(t, "{tokens: total, usage: ask}", func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			if string(text) != one.body && string(text) != `{"stream_options":{"include_usage":true},"model":"m"}` {
				t.Errorf("the body is corrupted")
			}
		})
		resp, err := http.Post(url+one.path, one.typ, strings.NewReader(one.body))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
}
