// Command modelclient makes one call to a model with an official SDK for Go. It writes, as JSON, the results that a
// program gets from the SDK: see ../node/client.mjs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"

	"github.com/anthropics/anthropic-sdk-go/v2"
	"github.com/openai/openai-go/v3"
)

type call struct {
	URL, API, Key, Model, Text string
	MaxTokens                  int64
	Stream, Usage, Tools       bool
	LeaveAfter, Retries        int
	Headers                    map[string]string
}

type answer struct {
	Text     string `json:"text"`
	Tool     *tool  `json:"tool,omitempty"`
	Usage    *usage `json:"usage,omitempty"`
	Finish   string `json:"finish"`
	Events   int    `json:"events"`
	Calls    int    `json:"calls"`
	Encoding string `json:"encoding"`
	Error    *fault `json:"error,omitempty"`
}

type tool struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	Input  int64 `json:"input"`
	Cached int64 `json:"cached"`
	Output int64 `json:"output"`
}

type fault struct {
	Class   string            `json:"class"`
	Status  int               `json:"status"`
	Code    string            `json:"code"`
	Type    string            `json:"type"`
	Message string            `json:"message"`
	Headers map[string]string `json:"headers"`
}

const toolName, toolText = "weather", "The weather of a city."

// properties and required are the parameters of the tool.
var (
	properties = map[string]any{"city": map[string]any{"type": "string"}}
	required   = []string{"city"}
)

func main() {
	var c call
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		log.Fatal(err)
	}
	var a answer
	err := map[string]func(context.Context, *call, *answer) error{"chat": chat, "responses": response, "messages": message}[c.API](context.Background(), &c, &a)
	if err != nil {
		a.Error = faultOf(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(&a); err != nil {
		log.Fatal(err)
	}
}

// count counts the HTTP calls, including retries.
func (a *answer) count(r *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	a.Calls++
	resp, err := next(r)
	if err == nil && resp.Uncompressed {
		a.Encoding = "gzip"
	}
	return resp, err
}

// leaves reports whether the client leaves at this event.
func (a *answer) leaves(c *call) bool {
	a.Events++
	return a.Events == c.LeaveAfter
}

func faultOf(err error) *fault {
	f := &fault{Class: fmt.Sprintf("%T", err), Message: err.Error(), Headers: map[string]string{}}
	var resp *http.Response
	if e, ok := errors.AsType[*openai.Error](err); ok {
		f.Status, f.Code, f.Type, f.Message, resp = e.StatusCode, e.Code, e.Type, e.Message, e.Response
	}
	if e, ok := errors.AsType[*anthropic.Error](err); ok {
		f.Status, f.Type, f.Message, resp = e.StatusCode, string(e.Type()), e.Message, e.Response
	}
	if resp != nil {
		for name := range resp.Header {
			f.Headers[name] = resp.Header.Get(name)
		}
	}
	return f
}
