package usage_test

import (
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/usage"
)

// response is a body and the numbers that it reports.
type response struct {
	name, mediaType, body string
	want                  reading
}

// reading is the result of a scanner.
type reading struct {
	numbers      map[string]int64
	events, text int64
	unread       string
}

// responses returns the responses of testdata/bodies. Each has fields, an empty line and the body. The names of
// other fields are paths.
func responses(t testing.TB) (all []response) {
	t.Helper()
	files, err := filepath.Glob("testdata/bodies/*.txt")
	if err != nil || len(files) < 15 {
		t.Fatalf("%d bodies, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fields, body, _ := strings.Cut(string(raw), "\n\n")
		r := response{name: filepath.Base(file), body: body, want: reading{numbers: map[string]int64{}}}
		for line := range strings.Lines(fields) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case strings.HasPrefix(line, "#"):
				continue
			case name == "type":
				r.mediaType, err = value, nil
			case name == "ends":
				r.body, err = strings.ReplaceAll(r.body, "\n", map[string]string{"crlf": "\r\n", "cr": "\r"}[value]), nil
			case name == "events":
				r.want.events = n
			case name == "text":
				r.want.text = n
			default:
				r.want.numbers[name] = n
			}
			if err != nil {
				t.Fatalf("%s: %s: %v", file, line, err)
			}
		}
		all = append(all, r)
	}
	return all
}

// allPaths are the paths in all bodies.
var allPaths = func() []string {
	all := []string{"timings.predicted_ms", "usage.total_tokens.total_tokens", "prompt_eval_count", "eval_count"}
	for _, top := range []string{"usage", "response.usage", "message.usage"} {
		for _, name := range []string{
			"prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "cache_read_input_tokens",
			"prompt_tokens_details.cached_tokens", "input_tokens_details.cached_tokens",
		} {
			all = append(all, top+"."+name)
		}
	}
	for _, name := range []string{"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount", "totalTokenCount", "cachedContentTokenCount"} {
		all = append(all, "usageMetadata."+name)
	}
	return append(all, "usage.cache_creation_input_tokens", "usage.total_tokens")
}()

func compile(t testing.TB, paths ...string) *usage.Paths {
	t.Helper()
	p, err := usage.Compile(paths)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scan reads pieces of a body with a scanner.
func scan(s *usage.Scanner, p *usage.Paths, paths []string, mediaType string, pieces ...string) reading {
	s.Reset(p, mediaType, "")
	for _, piece := range pieces {
		b := []byte(piece)
		s.Write(b)
		clear(b) // the scanner must not keep b
	}
	s.End()
	r := reading{map[string]int64{}, s.Events(), s.Text(), s.Unread()}
	for i, path := range paths {
		if n, found := s.Number(i); found {
			r.numbers[path] = n
		}
	}
	return r
}

func (r reading) equal(o reading) bool {
	if len(r.numbers) != len(o.numbers) || r.events != o.events || r.text != o.text || r.unread != o.unread {
		return false
	}
	for path, n := range r.numbers {
		if m, found := o.numbers[path]; !found || m != n {
			return false
		}
	}
	return true
}

// Bodies of all APIs give the same result however they are divided. higress #55 and aibrix PR #2653 miss divided
// events.
func TestBodies(t *testing.T) {
	p, s := compile(t, allPaths...), new(usage.Scanner)
	for _, r := range responses(t) {
		if got := scan(s, p, allPaths, r.mediaType, r.body); !got.equal(r.want) {
			t.Errorf("%s: %+v, want %+v", r.name, got, r.want)
			continue
		}
		for cut := range r.body {
			if got := scan(s, p, allPaths, r.mediaType, r.body[:cut], "", r.body[cut:]); !got.equal(r.want) {
				t.Errorf("%s, cut before %.20q: %+v, want %+v", r.name, r.body[cut:], got, r.want)
				break
			}
		}
		for _, size := range []int{1, 2, 3, 7, 64} {
			if got := scan(s, p, allPaths, r.mediaType, pieces(r.body, size)...); !got.equal(r.want) {
				t.Errorf("%s, in pieces of %d: %+v, want %+v", r.name, size, got, r.want)
			}
		}
	}
}

func pieces(body string, size int) (all []string) {
	for len(body) > size {
		all, body = append(all, body[:size]), body[size:]
	}
	return append(all, body)
}

// A number is final as soon as the byte after it has been read, and stays if the body breaks off there.
func TestNumberBeforeTheEnd(t *testing.T) {
	var s usage.Scanner
	s.Reset(compile(t, "usage.total_tokens"), "text/event-stream", "")
	for _, step := range []struct {
		piece string
		want  int64
	}{
		{`data: {"usage":{"total_tokens":1`, 0}, {`2`, 0}, {`}`, 12}, {"}\n\ndata: {\"usage\":null}\n\n", 12},
		{`data: {"usage":{"total_tokens":34,"x":"`, 34}, {"\n\n", 34}, {`data: {"usage":{"total_tokens":56`, 34},
	} {
		s.Write([]byte(step.piece))
		if n, _ := s.Number(0); n != step.want {
			t.Errorf("after %q: %d, want %d", step.piece, n, step.want)
		}
	}
	s.End()
	if n, _ := s.Number(0); n != 56 {
		t.Errorf("at the end: %d", n)
	}
}

// Unread returns why a body cannot be read. ai-gateway PR #1189 and wso2 #1245 count nothing for compressed bodies.
func TestUnread(t *testing.T) {
	p := compile(t, "n")
	const body, event = `{"n":1}`, "data: {\"n\":1}\n\n"
	for _, c := range []struct{ mediaType, coding, body, want string }{
		{"application/json", "", body, ""},
		{"Application/JSON ; charset=utf-8", "Identity", body, ""},
		{"application/problem+json", "", body, ""},
		{"application/vnd.api+JSON;x=y", "", body, ""},
		{"application/x-ndjson", "", body, ""},
		{"application/jsonl; charset=utf-8", "", body, ""},
		{"application/ndjson", "", body, ""},
		{"application/x-jsonlines", "", body, ""},
		{"text/event-stream;charset=UTF-8", "", event, ""},
		{"", "", " \n" + body, ""},
		{"", "", `[{"n":1}]`, ""},
		{"", "", "\xef\xbb\xbf" + body, ""},
		{"application/json", "", "\xef\xbb\xbf" + body, ""},
		{"text/event-stream", "", "\xef\xbb\xbf" + event, ""},
		{"", "", "", ""},
		{"application/json", "", "", ""},
		{"text/event-stream", "", ": nothing\n\ndata: [DONE]\n\n", ""},
		{"", "", "data: {}", "type"},
		{"", "", `"n"`, "type"},
		{"text/plain", "", body, "type"},
		{"+json", "", body, "type"},
		{"application/json-seq", "", body, "type"},
		{"application/jsonx", "", body, "type"},
		{"application/json", "gzip", body, "encoded"},
		{"text/event-stream", "br", event, "encoded"},
		{"text/plain", "zstd", body, "encoded"},
		{"application/json", "", body + "x", "malformed"},
		{"application/json", "", body[:6], "malformed"},
		{"application/json", "", `{"a":"`, "malformed"},
		{"application/json", "", `{"a"}`, "malformed"},
		{"application/json", "", `[1,]`, "malformed"},
		{"application/json", "", event, "malformed"},
		{"application/json", "", `{"a":DONE}`, "malformed"},
		{"application/x-ndjson", "", "{\n" + body, ""},
		{"application/x-ndjson", "", body + "\n{", ""},
		{"application/x-ndjson", "", "{\n}\n", "malformed"},
		{"text/event-stream", "", "data: x\n\n" + event, ""},
		{"text/event-stream", "", "data: x\n\n", "malformed"},
	} {
		for _, size := range []int{1, len(c.body) + 1} {
			var s usage.Scanner
			s.Reset(p, c.mediaType, c.coding)
			for _, piece := range pieces(c.body, size) {
				s.Write([]byte(piece))
			}
			s.End()
			if got := s.Unread(); got != c.want {
				t.Errorf("%q, %q, %q: %q, want %q", c.mediaType, c.coding, c.body, got, c.want)
			}
			if n, found := s.Number(0); c.want == "" && strings.Contains(c.body, body) && (n != 1 || !found) {
				t.Errorf("%q, %q: %d, %t", c.mediaType, c.body, n, found)
			}
		}
	}
}

func TestCompile(t *testing.T) {
	for path, want := range map[string]string{
		"":                              "empty",
		".":                             "empty",
		"a..b":                          "empty",
		"a.":                            "empty",
		strings.Repeat("x", 257):        "256",
		strings.Repeat("x.", 100) + "x": "100",
	} {
		if _, err := usage.Compile([]string{"a", path}); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v", path, err)
		}
	}
	paths := []string{"a.b", "a", "a.b", "ä\"\n", "a.b.c"}
	p := compile(t, paths...)
	if p.Len() != len(paths) || compile(t).Len() != 0 {
		t.Errorf("%d and %d paths", p.Len(), compile(t).Len())
	}
	body := `{"a":1,"a":{"b":2,"c":9},"\u00e4\"\n":3,"b":{"c":4},"a":{"b":{"c":5}}}`
	got := scan(new(usage.Scanner), p, []string{"0", "1", "2", "3", "4"}, "", body)
	want := reading{numbers: map[string]int64{"0": 2, "1": 1, "2": 2, "3": 3, "4": 5}, events: 1}
	if !got.equal(want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// After Reset, a scanner keeps nothing of the previous response.
func TestReset(t *testing.T) {
	var s usage.Scanner
	p := compile(t, "n", "m")
	s.Reset(p, "application/json", "")
	s.Write([]byte(`{"n":1,"text":"abc","m":"\u00`))
	for _, q := range []*usage.Paths{p, compile(t, "a", "b", "c", "d")} {
		got := scan(&s, q, make([]string, q.Len()), "text/event-stream", "data: {\"text\":\"a\"}\n\n")
		if want := (reading{events: 1, text: 1}); !got.equal(want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}

// rounded returns a number rounded up, and bounded like a scanner's numbers.
func rounded(t testing.TB, number string) int64 {
	t.Helper()
	r, ok := new(big.Rat).SetString(number)
	if !ok {
		t.Fatalf("%q is not a number", number)
	}
	n := new(big.Int).Sub(r.Num(), big.NewInt(1))
	n.Add(n.Div(n, r.Denom()), big.NewInt(1)) // Div rounds down
	switch {
	case n.Sign() <= 0:
		return 0
	case n.Cmp(big.NewInt(usage.MaxNumber)) > 0:
		return usage.MaxNumber
	}
	return n.Int64()
}

func TestNumbers(t *testing.T) {
	const most = "9007199254740991"
	p, s := compile(t, "n"), new(usage.Scanner)
	for _, number := range []string{
		"0", "-0", "1", "-1", "1.0", "1.5", "0.1", "0.000", "-0.5", "12e0", "12E+2", "1200e-2", "1201e-2", "1e-9", "0e9", "0.0e-9", "1.25e1",
		most, "9007199254740992", most + ".0", most + ".1", "9007199254740990.1", "90071992547409910e-1", "90071992547409909e-1", "900719925474099.1e1",
		"9223372036854775807", "9223372036854775808", "18446744073709551616", "1e15", "9e15", "1e16", "1e99", "1e2000", "1e-2000", "0.1e16", "-1e2000",
		"1" + strings.Repeat("0", 200) + "e-200", "1" + strings.Repeat("0", 200) + ".000e-200", "1" + strings.Repeat("0", 199) + "1e-200",
		"0." + strings.Repeat("0", 200) + "1e201", "0." + strings.Repeat("0", 200) + "11e201", "1." + strings.Repeat("0", 250), "1." + strings.Repeat("0", 250) + "1",
		"0." + strings.Repeat("9", 250), "12345678901234567.5e-3", "0.1000000000000000055511151231257827021181583404541015625",
	} {
		want := rounded(t, number)
		for _, size := range []int{1, 1000} {
			got := scan(s, p, []string{"n"}, "", pieces(`{"n":`+number+`}`, size)...)
			if n, found := got.numbers["n"]; n != want || !found || got.unread != "" {
				t.Errorf("%s: %+v, want %d", number, got, want)
			}
		}
	}
	// Numbers that big.Rat cannot read.
	huge := "1" + strings.Repeat("0", 100)
	for number, want := range map[string]int64{
		"1e" + huge: usage.MaxNumber, "1e-" + huge: 1, "0e" + huge: 0, "-1e" + huge: 0, "1e+000" + huge: usage.MaxNumber, "1e-000000000000000000000": 1,
		"1e9223372036854775807": usage.MaxNumber, "1e-9223372036854775808": 1, "1e18446744073709551617": usage.MaxNumber,
	} {
		if got := scan(s, p, []string{"n"}, "", `{"n":`+number+`}`); got.numbers["n"] != want || got.unread != "" {
			t.Errorf("%s: %+v, want %d", number, got, want)
		}
	}
}

// Depth and sizes are bounded, and everything within the bounds is read.
func TestHostile(t *testing.T) {
	p, s := compile(t, "usage.n"), new(usage.Scanner)
	nested := func(n int, open, inner, end string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
	}
	const number = `"usage":{"n":5}`
	long := strings.Repeat("x", 5<<20)
	for name, c := range map[string]struct {
		body   string
		n      int64
		text   int
		unread string
	}{
		"arrays":        {`{"a":` + nested(5000, "[", `"]",1,{"usage":{"n":6}}`, "]") + `,` + number + `}`, 5, 0, ""},
		"objects":       {`{"a":` + nested(100_000, `{"content":`, `"a}\"}"`, "}") + `,` + number + `}`, 5, 0, ""},
		"content":       {`{"content":` + nested(100, `[`, `"a"`, "]") + `,` + number + `}`, 5, 0, ""},
		"deepest":       {`{"a":` + nested(98, `[`, `{"content":"a"}`, "]") + `,` + number + `}`, 5, 1, ""},
		"too deep":      {`{"a":` + nested(99, `[`, `{"content":"a"}`, "]") + `,` + number + `}`, 5, 0, ""},
		"never closed":  {`{` + number + `,"a":` + strings.Repeat("[", 1<<20), 5, 0, "malformed"},
		"a long string": {`{"content":"` + long + `",` + number + `}`, 5, len(long), ""},
		"a long name":   {`{"` + long + `":{"n":6},"usage` + strings.Repeat("x", 252) + `":{"n":7},` + number + `}`, 5, 0, ""},
		"a long space":  {`{` + strings.Repeat(" \n", 1<<20) + number + `}`, 5, 0, ""},
		"a long number": {`{` + number + `,"a":` + strings.Repeat("1", 257) + `,"usage":{"n":6}}`, 5, 0, "malformed"},
		"escapes":       {`{"content":"` + strings.Repeat(`\"`, 1<<20) + `",` + number + `}`, 5, 2 << 20, ""},
		"members":       {`{` + strings.Repeat(`"usage":{"n":6},`, 100_000) + number + `}`, 5, 0, ""},
	} {
		for _, count := range []int{1, 1000, 30_000} {
			size := len(c.body)/count + 1
			got := scan(s, p, []string{"n"}, "application/json", pieces(c.body, size)...)
			if want := (reading{map[string]int64{"n": c.n}, 1, int64(c.text), c.unread}); !got.equal(want) {
				t.Errorf("%s, in pieces of %d: %+v, want %+v", name, size, got, want)
			}
		}
	}
}

// Reading a response allocates only the scanner, and its numbers in Reset.
func TestAllocations(t *testing.T) {
	p := compile(t, allPaths...)
	for _, r := range responses(t) {
		all := [][]byte{}
		for _, piece := range pieces(r.body, 100) {
			all = append(all, []byte(piece))
		}
		if n := testing.AllocsPerRun(10, func() {
			var s usage.Scanner
			s.Reset(p, r.mediaType, "")
			for _, piece := range all {
				s.Write(piece)
			}
			s.End()
		}); n > 2 {
			t.Errorf("%s: %v allocations, want at most 2", r.name, n)
		}
	}
}

// A body can show that it is complete, wherever its connection ends.
func TestEnded(t *testing.T) {
	p, s := compile(t, "n"), new(usage.Scanner)
	const event = "data: {\"n\":1}\n\n"
	for _, c := range []struct {
		mediaType, body string
		want            bool
	}{
		{"application/json", `{"n":1}`, true},
		{"application/json", `{"n":1`, false},
		{"application/json", ``, false},
		{"application/x-ndjson", "{\"n\":1}\n", false},
		{"text/event-stream", event, false},
		{"text/event-stream", event + "data: [DONE]\n\n", true},
		{"text/event-stream", event + "data: [DON", false},
		{"text/event-stream", event + "data: {\"n\":DONE}", false},
		{"text/event-stream", "data: {\"text\":\"[DONE]\"}\n\n", false},
		{"text/event-stream", `data: {"type":"response.incomplete","response":{"usage":{"input_tokens":1}}}`, true},
		{"text/event-stream", `data: {"type":"response.failed"}`, true},
		{"text/event-stream", `data: {"type":"response.failed","type":"x"}`, false},
		{"text/event-stream", `data: {"type":"response.output_text.done"}`, false},
		{"text/event-stream", `data: {"type":"` + strings.Repeat("x", 300) + `message_stop"}`, false},
		{"text/event-stream", `data: {"delta":{"type":"message_stop"},"text":"message_stop"}`, false},
		{"text/event-stream", `data: ["type","message_stop"]`, false},
		{"text/event-stream", `data: {"type":["message_stop"]}`, false},
		{"text/event-stream", `data: {"type":"message_stop"`, false},
		{"application/x-ndjson", `{"done":false,"message":{"done":true}}`, false},
		{"application/x-ndjson", `{"done":"true"}`, false},
	} {
		s.Reset(p, c.mediaType, "")
		s.Write([]byte(c.body))
		if s.End(); s.Ended() != c.want {
			t.Errorf("%s %q: ended is %v", c.mediaType, c.body, !c.want)
		}
	}
}

// Members that repeat the request count neither as generated text nor as work in the background, wherever the body
// is divided.
func TestPending(t *testing.T) {
	p, s := compile(t, "usage.input_tokens"), new(usage.Scanner)
	const stream = "text/event-stream"
	for _, c := range []struct {
		mediaType, body string
		pending         bool
		text            int64
	}{
		{"", `{"status":"queued"}`, true, 0},
		{"", `{"status":"in_progress","output":[]}`, true, 0},
		{"", `{"status":"completed","background":false}`, false, 0},
		{"", `{"background":true}`, true, 0},
		{"", `{"output":[{"status":"queued","background":true,"text":"ab"}]}`, false, 2},
		{"", `{"metadata":{"status":"queued","text":"x","usage":{"text":"x"}},"content":"abc"}`, false, 3},
		{"", `{"input":[{"content":"x"},["x",{"text":"x"}]],"a":[{"input":"x"},{"content":"abc"}],"tools":[{"text":"x"}]}`, false, 3},
		{"", `{"instructions":"x","text":"ab"}`, false, 2},
		{stream, "data: {\"response\":{\"status\":\"in_progress\"}}\n\n", false, 0},
		{stream, "data: {\"response\":{\"status\":\"queued\"}}\n\n", true, 0},
		{stream, "data: {\"response\":{\"background\":true}}\n\n", true, 0},
		{stream, "data: {\"response\":{\"status\":\"queued\"}}\n\ndata: {\"type\":\"response.completed\"}\n\n", false, 0},
	} {
		for cut := range len(c.body) + 1 {
			s.Reset(p, c.mediaType, "")
			s.Write([]byte(c.body[:cut]))
			s.Write([]byte(c.body[cut:]))
			if s.End(); s.Pending() != c.pending || s.Text() != c.text {
				t.Fatalf("%s, cut at %d: pending is %v, and %d bytes are text", c.body, cut, s.Pending(), s.Text())
			}
		}
	}
}

// The stream of each API is complete from its last event on, and not earlier.
func TestEndedAtEveryCut(t *testing.T) {
	p, s := compile(t, allPaths...), new(usage.Scanner)
	last := map[string]string{
		"anthropic_stream.txt": "}", "openai_responses_stream.txt": "}", "ollama_chat_stream.txt": "}", "openai_chat_stream.txt": "[DONE",
		"openai_chat_interrupted.txt": "",
	}
	tried := 0
	for _, r := range responses(t) {
		end, known := last[r.name]
		if !known {
			continue
		}
		tried++
		whole := len(r.body) + 1
		if end != "" {
			whole = strings.LastIndex(r.body, end) + len(end)
		}
		for cut := range len(r.body) + 1 {
			for _, first := range []int{cut, cut / 2, max(cut-1, 0)} {
				s.Reset(p, r.mediaType, "")
				s.Write([]byte(r.body[:first]))
				s.Write([]byte(r.body[first:cut]))
				if s.End(); s.Ended() != (cut >= whole) {
					t.Fatalf("%s, cut off after %q: ended is %v", r.name, r.body[max(0, cut-20):cut], s.Ended())
				}
			}
		}
	}
	if tried != len(last) {
		t.Errorf("%d bodies of %d", tried, len(last))
	}
}
