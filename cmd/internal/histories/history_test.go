package histories

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// history is a file of testdata: see the package comment.
type history struct {
	name     string
	without  map[string]string // by layer, the reason why it cannot play the history
	policies map[string]string // by name; the first one's name is ""
	steps    []step
}

// step is a line of a history.
type step struct {
	line  string // "file.txt:12: the line"
	verb  string // "request", or the first word of another step
	args  []string
	times int
	mode  string // "peek", "refund", "begin" or none
	as    string // the request's name in "begin"
	request
	want verdict
}

// request is what a layer sends.
type request struct {
	method, path, client, id string
	body                     string // JSON
	header                   http.Header
	cost                     int64 // 0: not given
	response                 *response
}

// response is the response of the handler behind a limit.
type response struct {
	status int
	header http.Header
	bytes  int
}

// verdict is the answer to a request, as a history expects it or as a layer has returned it.
type verdict struct {
	status           int
	left             []left
	retry            time.Duration // [sluice.Never] if waiting does not help, 0 if it is unknown
	delay            time.Duration
	exempt, repeated bool
	blocked, missing string
}

// left has the remaining units of a limit.
type left struct {
	name   string
	units  int64
	shadow bool
}

func loadHistories(t *testing.T) (all []*history) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		h, err := parseHistory(filepath.Base(file), string(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

func parseHistory(file, text string) (*history, error) {
	h := &history{
		name:     strings.TrimSuffix(file, ".txt"),
		without:  make(map[string]string),
		policies: make(map[string]string),
	}
	section := ""
	for i, line := range strings.Split(text, "\n") {
		at := fmt.Sprintf("%s:%d: %s", file, i+1, strings.TrimSpace(line))
		if name, opens := strings.CutPrefix(line, "-- "); opens {
			section = strings.TrimSpace(strings.TrimSuffix(name, " --"))
			if section != "steps" && section != "policy" && !strings.HasPrefix(section, "policy ") {
				return nil, fmt.Errorf("%s: a section is \"-- policy --\", \"-- policy NAME --\" or \"-- steps --\"", at)
			}
			continue
		}
		switch section {
		case "":
			if err := h.parseHead(line); err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
		case "steps":
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			s, err := parseStep(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", at, err)
			}
			s.line = at
			h.steps = append(h.steps, s)
		default:
			h.policies[strings.TrimSpace(strings.TrimPrefix(section, "policy"))] += line + "\n"
		}
	}
	if h.policies[""] == "" || len(h.steps) == 0 {
		return nil, fmt.Errorf("%s: a history has a policy and steps", file)
	}
	return h, nil
}

// parseHead reads a line before the first section.
func (h *history) parseHead(line string) error {
	rest, found := strings.CutPrefix(line, "without ")
	if !found {
		return nil
	}
	names, why, _ := strings.Cut(rest, ":")
	if strings.TrimSpace(why) == "" {
		return fmt.Errorf("missing reason, as in \"without resp: it asks about one rule\"")
	}
	for name := range strings.SplitSeq(names, ",") {
		if name = strings.TrimSpace(name); !slices.Contains(layerNames(), name) {
			return fmt.Errorf("unknown layer %q: the layers are %s", name, strings.Join(layerNames(), ", "))
		}
		h.without[name] = strings.TrimSpace(why)
	}
	return nil
}

// verbs are the first words of steps that are not requests.
var verbs = []string{"wait", "end", "reset", "block", "unblock", "override", "subject", "policy"}

func parseStep(line string) (s step, err error) {
	words := strings.Fields(line)
	if slices.Contains(verbs, words[0]) {
		return step{verb: words[0], args: words[1:]}, nil
	}
	before, after, found := strings.Cut(line, "->")
	if !found {
		return s, fmt.Errorf("a step is a request with \"->\" and a verdict, or one of %s", strings.Join(verbs, ", "))
	}
	words = strings.Fields(before)
	s = step{verb: "request", times: 1}
	if len(words) > 1 && words[1] == "times" {
		if s.times, err = strconv.Atoi(words[0]); err != nil {
			return s, err
		}
		words = words[2:]
	}
	if len(words) > 0 && slices.Contains([]string{"peek", "refund", "begin"}, words[0]) {
		s.mode, words = words[0], words[1:]
		if s.mode == "begin" && len(words) > 0 {
			s.as, words = words[0], words[1:]
		}
	}
	if s.request, err = parseRequest(words); err != nil {
		return s, err
	}
	s.want, err = parseVerdict(after)
	return s, err
}

func parseRequest(words []string) (r request, err error) {
	r = request{method: "GET", path: "/", client: "192.0.2.1", header: make(http.Header)}
	if len(words) >= 2 && strings.HasPrefix(words[1], "/") {
		r.method, r.path, words = words[0], words[1], words[2:]
	}
	for i, word := range words {
		if word == "answers" {
			r.response, err = parseResponse(words[i+1:])
			return r, err
		}
		name, value, found := strings.Cut(word, "=")
		switch {
		case !found:
			return r, fmt.Errorf("%q is neither a header X-Name=value nor client=, cost=, id=, body= or answers", word)
		case name == "client":
			r.client = value
		case name == "id":
			r.id = value
		case name == "body":
			r.body = value
			r.header.Set("Content-Type", "application/json")
		case name == "cost":
			r.cost, err = strconv.ParseInt(value, 10, 64)
		case name != http.CanonicalHeaderKey(name):
			return r, fmt.Errorf("a header is written %s", http.CanonicalHeaderKey(name))
		default:
			r.header.Add(name, value)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

func parseResponse(words []string) (*response, error) {
	if len(words) == 0 {
		return nil, fmt.Errorf("answers is followed by a status")
	}
	r := &response{header: make(http.Header)}
	var err error
	if r.status, err = strconv.Atoi(words[0]); err != nil {
		return nil, err
	}
	for _, word := range words[1:] {
		name, value, _ := strings.Cut(word, "=")
		if name != "bytes" {
			r.header.Add(name, value)
		} else if r.bytes, err = strconv.Atoi(value); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func parseVerdict(text string) (v verdict, err error) {
	for i, clause := range strings.Split(text, ",") {
		words := strings.Fields(clause)
		switch {
		case i == 0 && len(words) == 1:
			v.status = http.StatusOK
			if words[0] != "pass" {
				v.status, err = strconv.Atoi(words[0])
			}
		case len(words) >= 2 && words[len(words)-1] == "left":
			err = v.parseLeft(words)
		case len(words) == 2 && words[0] == "retry":
			v.retry, err = parseWait(words[1])
		case len(words) == 2 && words[0] == "delay":
			v.delay, err = parseWait(words[1])
		case len(words) > 1 && words[0] == "missing":
			v.missing = strings.Join(words[1:], " ")
		case len(words) == 3 && words[0] == "blocked" && words[1] == "by":
			v.blocked = words[2]
		case len(words) == 1 && words[0] == "exempt":
			v.exempt = true
		case len(words) == 1 && words[0] == "repeated":
			v.repeated = true
		default:
			return v, fmt.Errorf("%q is not a clause of a verdict", strings.TrimSpace(clause))
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

// parseLeft reads "2 left", "api 2 left" and "shadow api 2 left".
func (v *verdict) parseLeft(words []string) (err error) {
	var l left
	words = words[:len(words)-1]
	if l.shadow = words[0] == "shadow"; l.shadow {
		words = words[1:]
	}
	if len(words) == 2 {
		l.name, words = words[0], words[1:]
	}
	if l.units, err = strconv.ParseInt(words[0], 10, 64); err != nil {
		return err
	}
	v.left = append(v.left, l)
	return nil
}

func parseWait(word string) (time.Duration, error) {
	if word == "never" {
		return sluice.Never, nil
	}
	return time.ParseDuration(word)
}
