//go:build long

// Package llm calls models through the gateway with the official SDKs of OpenAI and Anthropic. The SDKs run in separate
// processes: testdata/node and testdata/go. The sample upstream serves the models.
package llm

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/sample"
	"github.com/sluicehq/sluice/internal/testkit"
)

// sdks are the SDKs and their APIs. Names that end in -go are Go modules, the others are npm packages.
var sdks = []struct {
	name string
	apis []string
}{
	{"openai", []string{"chat", "responses"}},
	{"openai-6", []string{"chat", "responses"}},
	{"anthropic", []string{"messages"}},
	{"openai-go", []string{"chat", "responses"}},
	{"anthropic-go", []string{"messages"}},
}

// everySDK runs a test with each SDK and each of its APIs.
func everySDK(t *testing.T, test func(t *testing.T, c call)) {
	for _, sdk := range sdks {
		for _, api := range sdk.apis {
			t.Run(sdk.name+" "+api, func(t *testing.T) {
				t.Parallel()
				test(t, call{SDK: sdk.name, API: api, Model: "sample-fast-cached", Text: "Write 12 words"})
			})
		}
	}
}

// call is a call of a model with an SDK, which makes no retries unless Retries is set.
type call struct {
	SDK        string            `json:"sdk"`
	URL        string            `json:"url"`
	API        string            `json:"api"` // "chat", "responses" or "messages"
	Key        string            `json:"key"` // API key
	Model      string            `json:"model"`
	Text       string            `json:"text"`
	MaxTokens  int               `json:"maxTokens"` // 0: not limited, or in Anthropic's API 1000
	Stream     bool              `json:"stream"`
	Usage      bool              `json:"usage"` // request the usage of a stream in OpenAI's Chat API
	Tools      bool              `json:"tools"`
	LeaveAfter int               `json:"leaveAfter"` // events of a stream, then the client leaves; 0: never
	Retries    int               `json:"retries"`
	SkipWaits  bool              `json:"skipWaits"` // waits before retries take no time (npm only)
	Headers    map[string]string `json:"headers"`
}

// answer is the result that a program gets from an SDK.
type answer struct {
	Text     string    `json:"text"`
	Finish   string    `json:"finish"` // the reason for the end, as the API names it
	Tool     *tool     `json:"tool,omitempty"`
	Usage    *usage    `json:"usage,omitempty"` // nil: the response did not report it
	Events   int       `json:"events,omitempty"`
	Calls    int       `json:"calls"`           // HTTP requests
	Waits    []float64 `json:"waits,omitempty"` // ms, if they were skipped
	Encoding string    `json:"encoding,omitempty"`
	Error    *fault    `json:"error,omitempty"`
}

type tool struct{ Name, Arguments string }

// usage is in tokens. Input includes the tokens from a cache, Cached.
type usage struct{ Input, Cached, Output int64 }

// fault is an error of an SDK.
type fault struct {
	Class               string
	Status              int
	Code, Type, Message string
	Headers             map[string]string
}

// modelClient builds testdata/go. This takes minutes if the build cache has none of its SDKs.
var modelClient = sync.OnceValues(func() (string, error) {
	return testkit.BuildModule("modelclient", "cmd/e2e/llm/testdata/go", ".")
})

// ask makes a call in a new process.
func ask(t testing.TB, c call) (a answer) {
	t.Helper()
	program := exec.CommandContext(t.Context(), "node", "client.mjs")
	if strings.HasSuffix(c.SDK, "-go") {
		path, err := modelClient()
		if err != nil {
			t.Fatal(err)
		}
		program = exec.CommandContext(t.Context(), path)
	} else if _, err := os.Stat("testdata/node/node_modules"); err != nil {
		testkit.Missing(t, "cmd/e2e/llm/testdata/node/node_modules")
	}
	in, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	program.Dir, program.Stdin, program.Stderr = filepath.Join("testdata", "node"), bytes.NewReader(in), &stderr
	out, err := program.Output()
	if err == nil {
		err = json.Unmarshal(out, &a)
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", c.SDK, in, err, out, &stderr)
	}
	return a
}

// models is the sample upstream in the process of the test.
type models struct {
	*httptest.Server
	left  atomic.Int32 // requests that the client left before the end
	sizes sync.Map     // bytes of the last request's body, by API key
}

// Prefixes of API keys. The first request with such a key fails.
const (
	failsOnce   = "fails-once"
	hangsUpOnce = "hangs-up-once"
)

func serveModels(t testing.TB) *models {
	m := &models{}
	handler := sample.Handler()
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if r.Context().Err() != nil {
				m.left.Add(1)
			}
		}()
		key := cmp.Or(r.Header.Get("X-Api-Key"), strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
		_, again := m.sizes.Swap(key, r.ContentLength)
		switch {
		case !again && strings.HasPrefix(key, hangsUpOnce):
			panic(http.ErrAbortHandler)
		case !again && strings.HasPrefix(key, failsOnce):
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			handler.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// gateway starts a gateway with a policy in front of the models.
func (m *models) gateway(t testing.TB, policy string, args ...string) *testkit.Gateway {
	t.Helper()
	return testkit.Serve(t, append([]string{"--policy", testkit.File(t, "policy.yaml", policy), "--upstream", m.URL}, args...)...)
}
