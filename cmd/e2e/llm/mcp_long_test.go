//go:build long

package llm

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// toolCall is a call of a tool.
type toolCall struct {
	Tool    string            `json:"tool"`
	Headers map[string]string `json:"headers"`
}

// toolResult is the result of a call, as the SDK returns it.
type toolResult struct {
	Text    string
	Class   string // the class of an error
	Code    int
	Message string
	Data    struct {
		Error      string
		RetryAfter int `json:"retry_after"`
		Limit      string
	}
}

// serveTools starts a server of tools, and returns its URL.
func serveTools(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("testdata/node/node_modules/@modelcontextprotocol"); err != nil {
		testkit.Missing(t, "cmd/e2e/llm/testdata/node/node_modules")
	}
	server := exec.CommandContext(t.Context(), "node", "mcp_server.mjs")
	server.Dir, server.Stderr = "testdata/node", os.Stderr
	out, err := server.StdoutPipe()
	if err == nil {
		err = server.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait() // its error is that it was killed
	})
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// callTools calls tools of a server with a key.
func callTools(t *testing.T, url, key string, calls ...toolCall) (tools []string, results []toolResult) {
	t.Helper()
	client := exec.CommandContext(t.Context(), "node", "mcp_client.mjs")
	client.Dir, client.Stderr = "testdata/node", os.Stderr
	client.Stdin = strings.NewReader(asJSON(t, map[string]any{"url": url, "key": key, "calls": calls}))
	out, err := client.Output()
	var all struct {
		Tools   []string
		Results []toolResult
	}
	if err == nil {
		err = json.Unmarshal(out, &all)
	}
	if err != nil || len(all.Results) != len(calls) {
		t.Fatalf("%v: %s", err, out)
	}
	return all.Tools, all.Results
}

// A limit counts the calls of a tool, and no other methods or tools. The SDK returns a denial as an error of the call,
// with the time to wait.
func TestLongTools(t *testing.T) {
	t.Parallel()
	g := testkit.Serve(t, "--upstream", serveTools(t), "--policy", testkit.File(t, "policy.yaml", `
version: 1
rules: [{name: tools, match: POST /mcp, body: {method: tools/call}, key: [api_key, "body:params[name]"], limit: 2/hour, answer: mcp}]
`))
	search, mail := toolCall{Tool: "search"}, toolCall{Tool: "mail"}
	tools, got := callTools(t, g.URL+"/mcp", "a", search, search, search, mail)
	if strings.Join(tools, " ") != "search mail" {
		t.Errorf("the tools are %q", tools)
	}
	for i, want := range []string{"search is done", "search is done", "", "mail is done"} {
		if got[i].Text != want {
			t.Errorf("call %d: %+v, want %q", i, got[i], want)
		}
	}
	refused := got[2]
	if refused.Class != "McpError" || refused.Code != -32029 || !strings.Contains(refused.Message, "Limit tools: 2 per 3600s. Retry in ") ||
		refused.Data.Error != "rate_limit_exceeded" || refused.Data.Limit != "tools" || refused.Data.RetryAfter < 1 || refused.Data.RetryAfter > 1800 {
		t.Errorf("%+v", refused)
	}
	if _, got := callTools(t, g.URL+"/mcp", "b", search); got[0].Text == "" {
		t.Errorf("another key: %+v", got[0])
	}
}

// Header fields for the method and the tool must match the body.
func TestLongToolsMismatch(t *testing.T) {
	t.Parallel()
	g := testkit.Serve(t, "--upstream", serveTools(t), "--policy", testkit.File(t, "policy.yaml", `
version: 1
rules: [{name: tools, match: POST /mcp, body: {method: tools/call}, key: [api_key, "body:params[name]"], limit: 20/hour, answer: mcp}]
`))
	of := func(method, name string) toolCall {
		return toolCall{"search", map[string]string{"Mcp-Method": method, "Mcp-Name": name}}
	}
	_, got := callTools(t, g.URL+"/mcp", "a", of("tools/call", "search"), of("tools/call", "mail"), of("tools/list", "search"))
	if got[0].Text != "search is done" {
		t.Errorf("%+v", got[0])
	}
	for i, name := range []string{"Mcp-Name", "Mcp-Method"} {
		if e := got[i+1]; e.Code != -32600 || !strings.Contains(e.Message, name+" differs from the field of the body that it repeats.") {
			t.Errorf("another %s: %+v", name, e)
		}
	}
}
