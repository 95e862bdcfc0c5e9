package sample

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// object is a JSON object.
type object = map[string]any

// prompt is the body of a request in any of the formats.
type prompt struct {
	Model         string
	Stream        *bool
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages            []message
	Input               input
	Tools               []tool
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	MaxOutputTokens     int `json:"max_output_tokens"`
	Options             struct {
		NumPredict int `json:"num_predict"`
	}
}

// streams reports whether the request asks for a stream. The parameter byDefault is the result for a request without
// the field stream.
func (p *prompt) streams(byDefault bool) bool {
	if p.Stream == nil {
		return byDefault
	}
	return *p.Stream
}

// message is a message or another item of a conversation.
type message struct {
	Type, Role string
	Content    content
}

// isResult reports whether the message has the result of a tool.
func (m message) isResult() bool {
	return m.Role == "tool" || m.Type == "function_call_output" || m.Content.result
}

// input is the conversation in OpenAI's API Responses: a text or messages.
type input []message

func (in *input) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*in = input{{Content: content{text: text}}}
		return nil
	}
	return json.Unmarshal(data, (*[]message)(in))
}

// content is the content of a message: a text, or parts that may contain text.
type content struct {
	text   string
	result bool // a part is the result of a tool
}

func (c *content) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &c.text) == nil {
		return nil
	}
	var parts []struct{ Type, Text string }
	err := json.Unmarshal(data, &parts)
	for _, p := range parts {
		c.text += p.Text
		c.result = c.result || p.Type == "tool_result"
	}
	return err
}

// tool is a tool that the model may call. In the APIs of OpenAI's Chat and of Ollama, the field function contains
// the tool.
type tool struct {
	Name        string
	Function    *tool
	Parameters  schema
	InputSchema schema `json:"input_schema"`
}

type schema struct{ Required []string }

// call returns the tool's name and the arguments for a call. Each required argument is "sample".
func (t tool) call() (name string, arguments object) {
	if t.Function != nil {
		return t.Function.call()
	}
	arguments = object{}
	for _, name := range append(t.Parameters.Required, t.InputSchema.Required...) {
		arguments[name] = "sample"
	}
	return t.Name, arguments
}

// answer is an answer of the model.
type answer struct {
	tokens                []string // pieces of the text, or of the JSON with the call's arguments
	tool                  string   // the name of the called tool, or ""
	arguments             object
	input, cached, output int  // numbers of tokens; the field input includes the field cached
	cut                   bool // the answer was cut at the maximum in the request
}

func (a *answer) text() string { return strings.Join(a.tokens, "") }

const (
	bytesOfToken  = 4
	defaultLength = 20 // words
	maxLength     = 1_000_000
)

// number finds the number of words for which a message asks.
var number = regexp.MustCompile(`\d+`)

// answer returns the answer to the prompt. The parameter size is the size of the request body in bytes.
func (p *prompt) answer(size int) (a answer) {
	a.input = (size + bytesOfToken - 1) / bytesOfToken
	if strings.Contains(p.Model, "-cached") {
		a.cached = a.input / 2
	}
	var last message
	if all := append(p.Messages, p.Input...); len(all) > 0 {
		last = all[len(all)-1]
	}
	n, _ := strconv.Atoi(number.FindString(last.Content.text))
	a.tokens = words(min(cmp.Or(n, defaultLength), maxLength))
	if len(p.Tools) > 0 && !last.isResult() {
		a.tool, a.arguments = p.Tools[0].call()
		a.tokens = strings.SplitAfter(string(encode(a.arguments)), `"`)
	}
	if most := max(p.MaxTokens, p.MaxCompletionTokens, p.MaxOutputTokens, p.Options.NumPredict); 0 < most && most < len(a.tokens) {
		a.tokens, a.cut = a.tokens[:most], true
	}
	a.output = len(a.tokens)
	return a
}

var sentence = strings.SplitAfter("Every request has a cost that only its answer knows, so an estimate is reserved first and settled later. ", " ")

// words returns n words of text.
func words(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = sentence[i%(len(sentence)-1)]
	}
	return all
}

// pace returns the time that a model takes for a word.
func pace(model string) time.Duration {
	switch {
	case strings.Contains(model, "-fast"):
		return 0
	case strings.Contains(model, "-slow"):
		return 200 * time.Millisecond
	}
	return 5 * time.Millisecond
}

// maxPrompt is the maximum size of a prompt in bytes.
const maxPrompt = 64 << 20

// serveModel returns the handler of an API. The function api writes the answer to the prompt of an exchange.
func serveModel(api func(*exchange)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxPrompt))
		x := &exchange{w: w, request: r, control: http.NewResponseController(w)}
		if err == nil {
			err = json.Unmarshal(body, &x.prompt)
		}
		if err != nil || x.prompt.Model == "" {
			x.fail(http.StatusBadRequest, "invalid_request_error", "send a JSON object with a model and messages")
			return
		}
		x.answer = x.prompt.answer(len(body))
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			x.zip = gzip.NewWriter(w)
		}
		api(x)
		if x.zip != nil {
			_ = x.zip.Close()
		}
	}
}

// exchange is a request to the model and its response.
type exchange struct {
	w       http.ResponseWriter
	control *http.ResponseController
	request *http.Request
	zip     *gzip.Writer // nil if the response is not compressed
	prompt  prompt
	answer  answer
}

// fail answers with an error in a format that clients of both OpenAI and Anthropic can read.
func (x *exchange) fail(status int, kind, text string) {
	x.w.Header().Del("Content-Encoding")
	x.zip = nil
	reply(x.w, status, object{"type": "error", "error": object{"type": kind, "message": text, "param": nil, "code": nil}})
}

// whole sends the whole answer at once, after the time that its words take.
func (x *exchange) whole(body any) {
	if strings.Contains(x.prompt.Model, "-fails") {
		x.fail(http.StatusInternalServerError, "api_error", "the model "+x.prompt.Model+" always fails")
		return
	}
	for range x.answer.tokens {
		x.wait()
	}
	x.w.Header().Set("Content-Type", "application/json")
	x.write(encode(body), []byte("\n"))
}

// each calls f for each piece of a streamed answer, at the pace of the model.
func (x *exchange) each(f func(piece string)) {
	for i, piece := range x.answer.tokens {
		if i >= len(x.answer.tokens)/2 && strings.Contains(x.prompt.Model, "-fails") {
			panic(http.ErrAbortHandler)
		}
		x.wait()
		f(piece)
	}
}

// wait waits for the time that a word takes. If the client has left, it ends the handler.
func (x *exchange) wait() {
	select {
	case <-time.After(pace(x.prompt.Model)):
	case <-x.request.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

// event sends a server-sent event. The name may be empty.
func (x *exchange) event(name string, data any) {
	x.w.Header().Set("Content-Type", "text/event-stream")
	if name != "" {
		name = "event: " + name + "\n"
	}
	x.write([]byte(name+"data: "), encode(data), []byte("\n\n"))
}

// line sends a line of newline-delimited JSON.
func (x *exchange) line(data any) {
	x.w.Header().Set("Content-Type", "application/x-ndjson")
	x.write(encode(data), []byte("\n"))
}

// write sends pieces of the body to the client. It ignores errors, because wait notices when the client has left.
func (x *exchange) write(pieces ...[]byte) {
	body := bytes.Join(pieces, nil)
	if x.zip != nil {
		_, _ = x.zip.Write(body)
		_ = x.zip.Flush()
	} else {
		_, _ = x.w.Write(body)
	}
	_ = x.control.Flush()
}

// raw is an event's data that is not JSON.
type raw string

func encode(data any) []byte {
	if text, ok := data.(raw); ok {
		return []byte(text)
	}
	body, _ := json.Marshal(data) // cannot fail for strings and numbers
	return body
}
