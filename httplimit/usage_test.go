package httplimit

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// model starts a server of h behind a rule that counts tokens. used returns the number of tokens that the rule has
// counted.
func model(t *testing.T, cost string, h http.HandlerFunc) (url string, used func() int64) {
	t.Helper()
	e := policytest.Engine(t, fmt.Sprintf("version: 1\nrules: [{name: tokens, limit: 100000/day, algorithm: fixed_window, cost: %s}]", cost))
	server := httptest.NewUnstartedServer(Policy(e)(h))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return server.URL, func() int64 { return 100000 - policytest.Remaining(t, e, "tokens") }
}

func post(t *testing.T, ctx context.Context, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

const delta = `data: {"choices":[{"delta":{"content":"%s"}}]}` + "\n\n"

// The usage of a response is settled when the response ends. A compressed response costs the estimate: ai-gateway PR
// #1189 and wso2 #1245 count nothing for it.
func TestUsageSettled(t *testing.T) {
	t.Parallel()
	const reserve = 1000 + 8 // for a body of 23 bytes
	for _, one := range []struct {
		name    string
		respond func(w http.ResponseWriter)
		want    int64
	}{
		{"plain", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, `{"usage":{"prompt_tokens":20,"completion_tokens":7}}`)
		}, 27},
		{"plain, of a known length, in pieces", func(w http.ResponseWriter) {
			const text = `{"usage":{"prompt_tokens":20,"completion_tokens":7}}`
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", fmt.Sprint(len(text)))
			for _, c := range text {
				io.WriteString(w, string(c))
			}
		}, 27},
		{"copied", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			io.Copy(w, strings.NewReader(`{"usage":{"prompt_tokens":20,"completion_tokens":7}}`))
		}, 27},
		{"streamed", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				fmt.Fprintf(w, delta, "usage")
				_ = http.NewResponseController(w).Flush()
			}
			io.WriteString(w, `data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":7}}`+"\n\ndata: [DONE]\n\n")
		}, 27},
		{"streamed without usage", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				fmt.Fprintf(w, delta, "text")
			}
		}, reserve}, // the model may have generated more tokens than it has sent
		{"broken off without usage", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			for range 5 {
				fmt.Fprintf(w, delta, "text")
			}
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 8 + 7}, // the estimate for 20 bytes of text is more than 5 events
		{"compressed", func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "x")
		}, reserve},
		{"broken off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, `data: {"message":{"usage":{"input_tokens":30,"output_tokens":1}}}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, 31},
		{"no answer", func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, reserve},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			url, used := model(t, "{tokens: total, estimate: {output: 1000}}", func(w http.ResponseWriter, r *http.Request) {
				if got := r.Header.Get("Accept-Encoding"); got != "identity" {
					t.Errorf("Accept-Encoding is %q", got)
				}
				one.respond(w)
			})
			resp, err := http.Post(url, "application/json", strings.NewReader(`{"messages":"0123456"}`+" "))
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
			testkit.Await(t, fmt.Sprintf("%d tokens are counted, not %d", one.want, used()), func() bool { return used() == one.want })
		})
	}
}

// Each piece reaches the client before the next is written: the middleware holds nothing back.
func TestUsageHoldsNothingBack(t *testing.T) {
	t.Parallel()
	next, done := make(chan struct{}), make(chan struct{})
	url, used := model(t, "{tokens: total, estimate: {output: 1000}}", func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		w.Header().Set("Content-Type", "text/event-stream")
		for n := 0; ; n++ {
			fmt.Fprintf(w, delta, "a")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, leave := context.WithCancel(t.Context())
	resp := post(t, ctx, url, `{}`)
	defer resp.Body.Close()
	piece := make([]byte, len(delta)-1)
	for range 20 {
		if _, err := io.ReadFull(resp.Body, piece); err != nil {
			t.Fatal(err)
		}
		next <- struct{}{}
	}
	leave() // counts the input, and one token for each event
	<-done
	testkit.Await(t, "the events that were sent are counted", func() bool { return used() == 1+21 || used() == 1+22 })
}

// With "usage: ask", the option for reporting usage is added to requests for a stream that do not set it. Other
// requests do not change. apisix overwrites the stream_options of clients.
func TestUsageAsked(t *testing.T) {
	t.Parallel()
	const asked = `{"include_usage":true}`
	for _, one := range []struct{ path, body, want string }{
		{"/v1/chat/completions", `{"stream":true,"model":"m"}`, asked},
		{"/v1/chat/completions", ` { "stream" : true }`, asked},
		{"/v1/completions", `{"model":"m","stream":true}`, asked},
		{"/v1/chat/completions", `{"stream":false}`, ""},
		{"/v1/chat/completions", `{"stream":true,"stream_options":{"include_usage":false}}`, `{"include_usage":false}`},
		{"/v1/chat/completions", `{"stream":true,"stream_options":null}`, asked},
		{"/v1/chat/completions", " { \"str\\u0065am_options\" : null , \"stream\":true}", asked},
		{"/v1/chat/completions", `{"stream":true,"Stream_options":{}}`, "{}"},
		{"/v1/messages", `{"stream":true}`, ""},
	} {
		url, _ := model(t, "{tokens: total, usage: ask}", func(w http.ResponseWriter, r *http.Request) {
			text, err := io.ReadAll(r.Body)
			if err != nil || r.ContentLength != int64(len(text)) || r.Header.Get("Content-Length") != fmt.Sprint(len(text)) {
				t.Errorf("%s: %d bytes of %d arrive, %v", one.body, len(text), r.ContentLength, err)
			}
			var got struct {
				Options json.RawMessage `json:"stream_options"`
				Stream  bool
			}
			if err := json.Unmarshal(text, &got); err != nil || string(got.Options) != one.want || got.Stream == (one.body == `{"stream":false}`) {
				t.Errorf("%s %s became %s, %v", one.path, one.body, text, err)
			}
		})
		resp := post(t, t.Context(), url+one.path, one.body)
		resp.Body.Close()
	}
}

// With KeepDecision, too, the length of a request is that of the body with the added option.
func TestUsageAskedWithDecision(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, "version: 1\nrules: [{name: tokens, limit: 100000/day, cost: {tokens: total, usage: ask}}]")
	h := Config{KeepDecision: true}.Policy(e)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text, err := io.ReadAll(r.Body); err != nil || r.ContentLength != int64(len(text)) || !strings.Contains(string(text), "include_usage") {
			t.Errorf("%d bytes of %d arrive, %v: %s", len(text), r.ContentLength, err, text)
		}
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"stream":true}`)))
}

// Settle overrides the usage in a response. With two middlewares, both read the usage.
func TestUsageDoors(t *testing.T) {
	t.Parallel()
	const document = "version: 1\nrules: [{name: a, limit: 1000/day, cost: {tokens: total, estimate: 100}}]"
	outer, inner := policytest.Engine(t, document), policytest.Engine(t, document)
	h := Policy(outer)(Policy(inner)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, `{"usage":{"prompt_tokens":20,"completion_tokens":7}}`)
		if r.URL.Path == "/knows" {
			Settle(r.Context(), policy.Outcome{Cost: 5})
		}
	})))
	for _, path := range []string{"/", "/knows"} {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, nil))
	}
	for name, e := range map[string]*policy.Engine{"outer": outer, "inner": inner} {
		if left := policytest.Remaining(t, e, "a"); left != 1000-27-5 {
			t.Errorf("%s: %d remain", name, left)
		}
	}
}
