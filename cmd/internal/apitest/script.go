package apitest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Section is a part of a script. It is a test of its own, and starts without state of other sections.
//
// A line "== title" starts a section, and "#" starts a comment. A line without indentation is a step; the indented
// lines below it belong to the step. A step that starts with a method is a request:
//
//	PUT /v1/rules/a {"limit": "1/day"} => 200 "limit":"1/day"
//		If-Match: $etag
//		"source":"database"
//		! "shadow"
//		$etag = ETag
//
// The JSON may also be an indented line. After "=>" come the wanted status and a text that the response must
// contain. The other indented lines are:
//
//	Name: value           a header field of the request
//	< Name: value         a header field of the response
//	! text                a text that the response must not contain
//	! < Name              a header field that the response must not have
//	$name = Field         set a variable to a header field of the response
//	$name = .items.0.id   set a variable to a part of the JSON, or with "." to all of it
//	text                  a text that the response must contain
//
// A request after "await" is repeated until the response has the wanted status. Other steps are the commands of the
// player.
type Section struct {
	Title string
	Steps []Step
}

// Step is a line of a script with the lines indented below it.
type Step struct {
	Where string // the file and the line
	Verb  string // the first word
	Rest  string // the other words, up to "=>"
	Want  string // what follows "=>"
	More  []string
}

// Sections returns the sections of the scripts that match a pattern, by the names of the files.
func Sections(t testing.TB, pattern string) map[string][]Section {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts match %s: %v", pattern, err)
	}
	all := map[string][]Section{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		all[name] = Script(t, filepath.Base(file), string(text))
	}
	return all
}

// Script returns the sections of a script.
func Script(t testing.TB, file, text string) (all []Section) {
	t.Helper()
	head, sections := testkit.Split(text)
	if head = strings.TrimSpace(head); head != "" && head[0] != '#' {
		t.Fatalf("%s: a script must start with \"== title\"", file)
	}
	for _, section := range sections {
		var steps []Step
		for i, line := range strings.Split(section.Text, "\n") {
			where := fmt.Sprintf("%s:%d", file, section.Line+i)
			switch indented := strings.HasPrefix(line, "\t"); {
			case strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#"):
			case !indented:
				head, want, _ := strings.Cut(line, " => ")
				verb, rest, _ := strings.Cut(strings.TrimSpace(head), " ")
				steps = append(steps, Step{Where: where, Verb: verb, Rest: rest, Want: strings.TrimSpace(want)})
			case len(steps) == 0:
				t.Fatalf("%s: the indented line does not belong to a step", where)
			default:
				step := &steps[len(steps)-1]
				step.More = append(step.More, strings.TrimSpace(line))
			}
		}
		all = append(all, Section{section.Name, steps})
	}
	return all
}

// Player plays scripts against an API.
type Player struct {
	T        testing.TB
	URL      string    // the URL of the API
	Document *Document // checks all exchanges, unless nil
	Token    string
	Client   *http.Client
	// Commands are the steps that are not requests, by first word.
	Commands map[string]func(s Step)
	// Vars are the variables.
	Vars map[string]string
}

var variable = regexp.MustCompile(`\$[a-z][a-z0-9]*`)

// Expand replaces variables in a text by their values.
func (p *Player) Expand(where, text string) string {
	p.T.Helper()
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		value, known := p.Vars[name[1:]]
		if !known {
			p.T.Fatalf("%s: no variable %s", where, name)
		}
		return value
	})
}

// Play executes the steps of a section.
func (p *Player) Play(s Section) {
	p.T.Helper()
	if p.Vars == nil {
		p.Vars = map[string]string{}
	}
	for _, step := range s.Steps {
		step.Rest, step.Want = p.Expand(step.Where, step.Rest), p.Expand(step.Where, step.Want)
		for i, line := range step.More {
			if name, of, assigns := strings.Cut(line, " = "); assigns && variable.FindString(name) == name {
				step.More[i] = name + " = " + p.Expand(step.Where, of)
				continue
			}
			step.More[i] = p.Expand(step.Where, line)
		}
		if do, known := p.Commands[step.Verb]; known {
			do(step)
			continue
		}
		p.request(step)
	}
}

var (
	field  = regexp.MustCompile(`^([A-Z][A-Za-z-]*): (.*)$`)
	method = regexp.MustCompile(`^[A-Z]+$`)
)

// request sends the request of a step, and compares the answer with the step.
func (p *Player) request(s Step) {
	p.T.Helper()
	awaits := s.Verb == "await"
	if awaits {
		s.Verb, s.Rest, _ = strings.Cut(s.Rest, " ")
	}
	if !method.MatchString(s.Verb) {
		p.T.Fatalf("%s: no command %q", s.Where, s.Verb)
	}
	path, body, _ := strings.Cut(s.Rest, " ")
	var fields, wants []string
	for _, line := range s.More {
		switch {
		case field.MatchString(line):
			fields = append(fields, line)
		case body == "" && (strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[")):
			body = line
		default:
			wants = append(wants, line)
		}
	}
	a := p.Do(s.Verb, path, body, fields...)
	status, _, _ := strings.Cut(s.Want, " ")
	for end := time.Now().Add(testkit.Patience); awaits && strconv.Itoa(a.Status) != status && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
		a = p.Do(s.Verb, path, body, fields...)
	}
	p.Hold(s, a, string(a.Body), wants)
}

// Answer is the response to a request.
type Answer struct {
	T      testing.TB
	Status int
	Header http.Header
	Body   []byte
}

// Do sends a request with header fields as in "Name: value", and checks the exchange against the document.
func (p *Player) Do(method, path, body string, fields ...string) *Answer {
	p.T.Helper()
	r, err := http.NewRequest(method, p.URL+path, strings.NewReader(body))
	if err != nil {
		p.T.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if p.Token != "" {
		r.Header.Set("Authorization", "Bearer "+p.Token)
	}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		r.Header.Set(name, value)
	}
	return p.Send(r, body)
}

// Send sends the request r, and checks the exchange as Do does. The parameter body is the body of r.
func (p *Player) Send(r *http.Request, body string) *Answer {
	p.T.Helper()
	client := p.Client
	if client == nil {
		client = http.DefaultClient
	}
	response, err := client.Do(r)
	if err != nil {
		p.T.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(firstEvent(response))
	if err != nil {
		p.T.Fatal(err)
	}
	a := &Answer{p.T, response.StatusCode, response.Header, data}
	if p.Document != nil {
		if err := p.Document.Check(r, body, a.Status, a.Header, a.Body); err != nil {
			p.T.Errorf("%v\n%s", err, a.Body)
		}
	}
	return a
}

// firstEvent returns the body of a response. Of a stream of events, it returns only the first event.
func firstEvent(r *http.Response) io.Reader {
	if r.Header.Get("Content-Type") != "text/event-stream" {
		return r.Body
	}
	var event strings.Builder
	for lines := bufio.NewScanner(r.Body); lines.Scan() && lines.Text() != ""; {
		event.WriteString(lines.Text() + "\n")
	}
	return strings.NewReader(event.String())
}

// Want fails the test unless the answer has the status.
func (a *Answer) Want(status int) *Answer {
	a.T.Helper()
	if a.Status != status {
		a.T.Fatalf("status %d, want %d: %s", a.Status, status, a.Body)
	}
	return a
}

// Says fails the test unless the body contains all texts.
func (a *Answer) Says(texts ...string) *Answer {
	a.T.Helper()
	for _, text := range texts {
		if !strings.Contains(string(a.Body), text) {
			a.T.Errorf("%s\nhas no %s", a.Body, text)
		}
	}
	return a
}

// Into decodes the body into v.
func (a *Answer) Into(v any) {
	a.T.Helper()
	if err := json.Unmarshal(a.Body, v); err != nil {
		a.T.Fatalf("%v: %s", err, a.Body)
	}
}

// Hold compares an answer with the wanted status of a step, and with the parameter lines, which [Section]
// describes. The parameter text is the body, or what a page with this body shows.
func (p *Player) Hold(s Step, a *Answer, text string, lines []string) {
	p.T.Helper()
	status, first, _ := strings.Cut(s.Want, " ")
	if strconv.Itoa(a.Status) != status {
		p.T.Fatalf("%s: %s %s: status %d, want %s: %s", s.Where, s.Verb, s.Rest, a.Status, status, text)
	}
	if first != "" {
		lines = append([]string{first}, lines...)
	}
	for _, line := range lines {
		name, of, assigns := strings.Cut(line, " = ")
		sent := strings.HasPrefix(line, "< ")
		unwanted, lacks := strings.CutPrefix(line, "! ")
		switch {
		case assigns && variable.FindString(name) == name:
			p.Vars[name[1:]] = p.valueOf(s, a, of)
		case sent:
			f := field.FindStringSubmatch(line[2:])
			if f == nil || !strings.Contains(a.Header.Get(f[1]), f[2]) {
				p.T.Errorf("%s: %s %s: the response has no %s: %v", s.Where, s.Verb, s.Rest, line[2:], a.Header)
			}
		case lacks && strings.HasPrefix(unwanted, "< "):
			if value := a.Header.Get(unwanted[2:]); value != "" {
				p.T.Errorf("%s: %s %s: the response has %s: %s", s.Where, s.Verb, s.Rest, unwanted[2:], value)
			}
		case lacks:
			if strings.Contains(text, unwanted) {
				p.T.Errorf("%s: %s %s: the response has %s:\n%s", s.Where, s.Verb, s.Rest, unwanted, text)
			}
		case !strings.Contains(text, line):
			p.T.Errorf("%s: %s %s: the response has no %s:\n%s", s.Where, s.Verb, s.Rest, line, text)
		}
	}
}

// valueOf returns the value of a header field or, if the name starts with a dot, a part of the JSON.
func (p *Player) valueOf(s Step, a *Answer, of string) string {
	p.T.Helper()
	path, ofBody := strings.CutPrefix(of, ".")
	switch {
	case !ofBody:
		return a.Header.Get(of)
	case path == "":
		return string(a.Body)
	}
	part := json.RawMessage(a.Body)
	for name := range strings.SplitSeq(path, ".") {
		var fields map[string]json.RawMessage
		var items []json.RawMessage
		if n, err := strconv.Atoi(name); err == nil && json.Unmarshal(part, &items) == nil && n < len(items) {
			part = items[n]
			continue
		}
		if err := json.Unmarshal(part, &fields); err != nil || fields[name] == nil {
			p.T.Fatalf("%s: %s has no %s", s.Where, a.Body, of)
		}
		part = fields[name]
	}
	return strings.Trim(string(part), `"`)
}
