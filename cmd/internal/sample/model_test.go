package sample

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// post sends a request to the handler and returns the response and its body.
func post(t *testing.T, path, body string, fields ...string) (*http.Response, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
	for i := 0; i < len(fields); i += 2 {
		r.Header.Set(fields[i], fields[i+1])
	}
	w := httptest.NewRecorder()
	Handler().ServeHTTP(w, r)
	return w.Result(), w.Body.String()
}

// size pads a body to 200 bytes, which count as 50 tokens.
func size(body string) string { return body + strings.Repeat(" ", 200-len(body)) }

// Each API returns the text or the tool call, the reason for its end, and the numbers of tokens.
func TestModel(t *testing.T) {
	t.Parallel()
	const (
		words    = `"model":"sample-fast-cached","messages":[{"role":"user","content":"Write 3 words"}]`
		asInput  = `"model":"sample-fast-cached","input":"Write 3 words"`
		chatTool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"required":["q"]}}}]`
	)
	for _, test := range []struct {
		path, body string
		want       []string // texts in the response, in this order
	}{
		{"/v1/chat/completions", words, []string{`"finish_reason":"stop"`, `"content":"Every request has "`, `"completion_tokens":3`, `"prompt_tokens":50,"prompt_tokens_details":{"cached_tokens":25},"total_tokens":53}`}},
		{"/v1/chat/completions", words + `,"max_tokens":2`, []string{`"finish_reason":"length"`, `"content":"Every request "`, `"completion_tokens":2`}},
		{"/v1/chat/completions", words + `,"stream":true`, []string{`"content":"Every "`, `"content":"has "`, `"finish_reason":"stop"`, "data: [DONE]\n\n"}},
		{"/v1/responses", asInput, []string{`"text":"Every request has "`, `"status":"completed"`, `"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":25},"output_tokens":3,`}},
		{"/v1/responses", asInput + `,"max_output_tokens":2,"stream":true`, []string{"event: response.created\n", `"usage":null`, `"delta":"request "`, "event: response.incomplete\n", `"reason":"max_output_tokens"`, `"output_tokens":2`}},
		{"/v1/messages", words + `,"max_tokens":9`, []string{`"text":"Every request has "`, `"stop_reason":"end_turn"`, `"usage":{"cache_creation_input_tokens":0,"cache_read_input_tokens":25,"input_tokens":25,"output_tokens":3}`}},
		{"/v1/messages", words + `,"max_tokens":2,"stream":true`, []string{"event: message_start\n", `"input_tokens":25,"output_tokens":1}`, `"text":"request "`, "event: message_delta\n", `"stop_reason":"max_tokens"`, `"usage":{"output_tokens":2}`}},
		{"/api/chat", words, []string{`{"content":"Every ","role":"assistant"}`, `"done":true`, `"eval_count":3`, `"prompt_eval_count":50`}},
		{"/api/chat", words + `,"stream":false,"options":{"num_predict":1}`, []string{`"done_reason":"length"`, `"eval_count":1`, `{"content":"Every ","role":"assistant"}`}},
		{"/v1/chat/completions", `"model":"-fast",` + chatTool, []string{`"finish_reason":"tool_calls"`, `"arguments":"{\"q\":\"sample\"}","name":"f"`, `"completion_tokens":5`}},
		{"/v1/responses", `"model":"-fast","tools":[{"type":"function","name":"f"}]`, []string{`"arguments":"{}"`, `"name":"f"`, `"type":"function_call"`}},
		{"/v1/messages", `"model":"-fast","tools":[{"name":"f","input_schema":{"required":["q"]}}]`, []string{`{"id":"toolu_sample","input":{"q":"sample"},"name":"f","type":"tool_use"}`, `"stop_reason":"tool_use"`}},
		{"/v1/messages", `"model":"-fast","tools":[{"name":"f"}],"messages":[{"content":[{"type":"tool_result"}]}]`, []string{`"type":"text"`}},
		{"/v1/messages", `"model":"-fast","messages":[{"content":[{"type":"text","text":"1"}]}]`, []string{`"text":"Every "`}},
		{"/v1/messages", `"model":"-fails"`, []string{`"message":"the model -fails always fails"`}},
		{"/v1/messages", `"messages":[]`, []string{`"message":"send a JSON object with a model and messages"`}},
	} {
		t.Run(test.path+" "+test.body, func(t *testing.T) {
			t.Parallel()
			_, body := post(t, test.path, size("{"+test.body+"}"))
			rest := body
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("%s is missing after the previous texts in\n%s", want, body)
				}
				rest = after
			}
		})
	}
}

// A chat stream reports its usage in a separate chunk without choices, and only on request.
func TestModelAskedUsage(t *testing.T) {
	t.Parallel()
	for asked, want := range map[string]int{`{"include_usage":true}`: 1, `{}`: 0} {
		_, body := post(t, "/v1/chat/completions", size(`{"model":"-fast","stream":true,"stream_options":`+asked+`}`))
		usages := 0
		for line := range strings.Lines(body) {
			var chunk struct {
				Choices []any
				Usage   *struct {
					Total int `json:"total_tokens"`
				}
			}
			if data := strings.TrimPrefix(line, "data: "); strings.HasPrefix(data, "{") && json.Unmarshal([]byte(data), &chunk) != nil {
				t.Fatalf("%q", data)
			}
			if chunk.Usage != nil {
				usages++
				if chunk.Usage.Total != 50+defaultLength || chunk.Choices == nil || len(chunk.Choices) > 0 {
					t.Errorf("%s: %+v", line, chunk)
				}
			}
		}
		if usages != want || strings.Contains(body, `"usage":null`) != (want == 1) {
			t.Errorf("stream_options %s: %d chunks report usage in\n%s", asked, usages, body)
		}
	}
}

// A response is compressed only on request, and its contents stay the same.
func TestModelGzip(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"true", "false"} {
		request := `{"model":"-fast","stream":` + stream + `}`
		_, plain := post(t, "/v1/responses", request)
		resp, body := post(t, "/v1/responses", request, "Accept-Encoding", "br, gzip")
		z, err := gzip.NewReader(strings.NewReader(body))
		if err != nil || resp.Header.Get("Content-Encoding") != "gzip" {
			t.Fatalf("%v %v", err, resp.Header)
		}
		if unzipped, err := io.ReadAll(z); err != nil || string(unzipped) != plain || plain == "" {
			t.Errorf("%v\n%q\n%q", err, unzipped, plain)
		}
	}
}

// An answer of 20 words takes 0.1 s. An answer ends when the client leaves.
func TestModelPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		post(t, "/v1/responses", `{"model":"any"}`)
		if took := time.Since(began); took != 100*time.Millisecond {
			t.Errorf("the answer took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 450*time.Millisecond)
		defer cancel()
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Error("the answer went on for a client that had left")
			}
		}()
		r := httptest.NewRequestWithContext(ctx, "POST", "/v1/responses", strings.NewReader(`{"model":"-slow"}`))
		Handler().ServeHTTP(httptest.NewRecorder(), r)
	})
}

// A stream of a model that fails is cut off halfway, compressed or not.
func TestModelFails(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(Handler())
	defer server.Close()
	for _, encoding := range []string{"identity", "gzip"} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", server.URL+"/api/chat", strings.NewReader(`{"model":"-fast-fails"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", encoding)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := io.Reader(resp.Body)
		if encoding == "gzip" {
			if body, err = gzip.NewReader(resp.Body); err != nil {
				t.Fatal(err)
			}
		}
		lines := bufio.NewScanner(body)
		n := 0
		for lines.Scan() {
			n++
		}
		if n != defaultLength/2 || lines.Err() == nil {
			t.Errorf("%s: %d lines, and then %v", encoding, n, lines.Err())
		}
	}
}
