package checkapi_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// The oracle reads a body with encoding/json, and then refuses invalid values that encoding/json accepts.

// generic reads JSON. It returns an error if an object has a name twice, or if a text has invalid UTF-8 or half of a
// surrogate pair.
func generic(text string) (any, error) {
	if !utf8.ValidString(text) || halfSurrogate(text) {
		return nil, errors.New("no text")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	v, err := value(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF || !json.Valid([]byte(text)) {
		return nil, errors.New("no JSON")
	}
	return v, nil
}

func value(d *json.Decoder) (any, error) {
	token, err := d.Token()
	switch token {
	case json.Delim('{'):
		all := map[string]any{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			v, err := value(d)
			if err != nil {
				return nil, err
			}
			if _, twice := all[name.(string)]; twice {
				return nil, errors.New("twice")
			}
			all[name.(string)] = v
		}
		_, err := d.Token()
		return all, err
	case json.Delim('['):
		all := []any{}
		for d.More() {
			v, err := value(d)
			if err != nil {
				return nil, err
			}
			all = append(all, v)
		}
		_, err := d.Token()
		return all, err
	}
	return token, err
}

var escapes = regexp.MustCompile(`\\(?:u([0-9a-fA-F]{4})|[^u])`)

// halfSurrogate reports whether an escape is half of a surrogate pair. In JSON, backslashes occur only in texts.
func halfSurrogate(text string) bool {
	high, end := false, -1
	for _, at := range escapes.FindAllStringSubmatchIndex(text, -1) {
		unit := uint64(0)
		if at[2] >= 0 {
			unit, _ = strconv.ParseUint(text[at[2]:at[3]], 16, 16)
		}
		low := unit >= 0xDC00 && unit < 0xE000
		if high != (low && at[0] == end) || low && !high {
			return true
		}
		high, end = utf16.IsSurrogate(rune(unit)) && !low, at[1]
	}
	return high
}

// wrongShape is the value with which the functions below panic.
type wrongShape struct{ what string }

func must(ok bool, what string) {
	if !ok {
		panic(wrongShape{what})
	}
}

func as[T any](v any) T {
	t, ok := v.(T)
	must(ok, fmt.Sprintf("%T", v))
	return t
}

func whole(v any, least, most int64) int64 {
	n, err := strconv.ParseInt(string(as[json.Number](v)), 10, 64)
	must(err == nil && n >= least && n <= most, "number")
	return n
}

func onlyNames(object map[string]any, names ...string) {
	for name := range object {
		must(slices.Contains(names, name), name)
	}
}

func texts(v any) map[string]string {
	all := map[string]string{}
	for name, t := range as[map[string]any](v) {
		all[name] = as[string](t)
	}
	must(len(all) <= 256, "many")
	return all
}

func header(v any) http.Header {
	h, n := http.Header{}, 0
	for name, value := range as[map[string]any](v) {
		values, isList := value.([]any)
		if !isList {
			values = []any{value}
		}
		must(h.Values(name) == nil && len(values) > 0, "field")
		for _, one := range values {
			h.Add(name, strings.Trim(as[string](one), " \t\r\n"))
			n++
		}
	}
	must(n <= 256, "many")
	return h
}

const most = 1 << 50

// expect is the oracle for Decode. It returns an error if the body is invalid.
func expect(path, text string) (checks []checkapi.Checked, doc any, err error) {
	doc, err = generic(text)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if p, wrong := recover().(wrongShape); wrong {
			checks, err = nil, errors.New(p.what)
		}
	}()
	object := as[map[string]any](doc)
	list, batch := object["checks"]
	if !batch || path == "/v1/settle" || path == "/v1/hold" || path == "/v1/release" {
		return []checkapi.Checked{expectCheck(path, object)}, doc, nil
	}
	must(len(object) == 1 && len(as[[]any](list)) >= 1 && len(as[[]any](list)) <= 1000, "checks")
	for _, one := range as[[]any](list) {
		checks = append(checks, expectCheck(path, as[map[string]any](one)))
	}
	return checks, doc, nil
}

func expectCheck(path string, object map[string]any) (c checkapi.Checked) {
	names := []string{"request", "rule", "key", "cost", "id"}
	c.Mode = map[string]policy.Mode{"/v1/peek": policy.Peek, "/v1/refund": policy.GiveBack}[path]
	switch path {
	case "/v1/check":
		names = append(names, "peek", "place")
	case "/v1/hold", "/v1/release":
		onlyNames(object, "place")
		must(object["place"] != nil, "place")
		c.Place = as[string](object["place"])
		return c
	case "/v1/settle":
		names = append(names, "outcome", "at")
		must(object["outcome"] != nil, "outcome")
	}
	onlyNames(object, names...)
	_, described := object["request"]
	_, ruled := object["rule"]
	_, keyed := object["key"]
	must(described != ruled && (ruled || !keyed), "about")
	for name, v := range object {
		switch name {
		case "request":
			expectRequest(as[map[string]any](v), &c)
		case "rule":
			c.Rule = as[string](v)
		case "key":
			c.Key = texts(v)
		case "cost":
			c.Cost = whole(v, 1, most)
		case "id":
			c.ID = as[string](v)
			must(c.ID != "" && len(c.ID) <= 256, "id")
		case "peek":
			if as[bool](v) {
				c.Mode = policy.Peek
			}
		case "place":
			c.Ends = as[bool](v)
		case "outcome":
			c.Outcome = expectOutcome(as[map[string]any](v))
		case "at":
			at, err := time.Parse(time.RFC3339, as[string](v))
			must(err == nil, "at")
			c.At = at
		}
	}
	must(!c.Ends || c.Mode == policy.Charge, "place")
	return c
}

func expectRequest(object map[string]any, c *checkapi.Checked) {
	onlyNames(object, "method", "host", "path", "headers", "client", "attributes", "body", "body_base64")
	must(object["path"] != nil && (object["body"] == nil || object["body_base64"] == nil), "request")
	for name, v := range object {
		switch name {
		case "method":
			c.Method = as[string](v)
		case "host":
			c.Host = as[string](v)
		case "path":
			c.Path = as[string](v)
		case "headers":
			c.Header = header(v)
		case "client":
			addr, err := netip.ParseAddr(as[string](v))
			if err != nil {
				port, err := netip.ParseAddrPort(as[string](v))
				must(err == nil, "client")
				addr = port.Addr()
			}
			c.Client = addr.WithZone("").Unmap().String()
		case "attributes":
			c.Attributes = texts(v)
		case "body":
			c.Body, c.HasBody = as[string](v), true
		case "body_base64":
			body, err := base64.StdEncoding.Strict().DecodeString(as[string](v))
			must(err == nil, "base64")
			c.Body, c.HasBody = string(body), true
		}
	}
}

func expectOutcome(object map[string]any) policy.Outcome {
	onlyNames(object, "status", "headers", "bytes", "cost", "counts")
	o := policy.Outcome{Bytes: -1}
	for name, v := range object {
		switch name {
		case "status":
			o.Status = int(whole(v, 100, 599))
		case "headers":
			o.Header = header(v)
		case "bytes":
			o.Bytes = whole(v, 0, most)
		case "cost":
			o.Cost = whole(v, 0, most)
			if o.Cost == 0 {
				o.Cost = -1
			}
		case "counts":
			o.Verdict = policy.CountsNot
			if as[bool](v) {
				o.Verdict = policy.Counts
			}
		}
	}
	return o
}

// resolves reports whether a JSON pointer refers to a value in a document.
func resolves(doc any, pointer string) bool {
	for i, step := range strings.Split(pointer, "/") {
		switch {
		case i == 0:
			if step != "" {
				return false
			}
			continue
		}
		step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
		switch v := doc.(type) {
		case map[string]any:
			next, there := v[step]
			if !there {
				return false
			}
			doc = next
		case []any:
			n, err := strconv.Atoi(step)
			if err != nil || n >= len(v) {
				return false
			}
			doc = v[n]
		default:
			return false
		}
	}
	return true
}

// Decode returns the same checks as the oracle. If it refuses a body, its pointer refers to a value in the body.
func FuzzDecode(f *testing.F) {
	paths := []string{"/v1/check", "/v1/peek", "/v1/refund", "/v1/settle", "/v1/hold", "/v1/release"}
	for _, file := range []string{"testdata/faults.txt", "testdata/calls.txt", "testdata/seeds.txt"} {
		for _, c := range testkit.Script(f, file) {
			for _, step := range c.Steps() {
				verb, body, _ := strings.Cut(step, " ")
				f.Add(slices.Index(paths, "/v1/"+verb), body)
			}
		}
	}
	f.Add(0, "{\"rule\":\"\xff\"}")
	f.Add(0, "{\"rule\":\"\n\"}")
	f.Fuzz(func(t *testing.T, n int, text string) {
		path := paths[uint(n)%uint(len(paths))]
		want, doc, err := expect(path, text)
		got, pointer, ok := checkapi.Decode(path, text)
		switch {
		case ok != (err == nil):
			t.Fatalf("%s %q: Decode accepts it: %v; error of the oracle: %v", path, text, ok, err)
		case ok && !reflect.DeepEqual(normal(got), normal(want)):
			t.Fatalf("%s %q is\n%+v, want\n%+v", path, text, got, want)
		case !ok && doc != nil && !resolves(doc, pointer):
			t.Fatalf("%s %q: the pointer %q refers to nothing", path, text, pointer)
		}
	})
}

// normal makes empty maps equal to nil maps, and times in different zones comparable.
func normal(all []checkapi.Checked) []checkapi.Checked {
	for i := range all {
		c := &all[i]
		c.At = c.At.UTC()
		c.Header, c.Outcome.Header = maps.Clone(c.Header), maps.Clone(c.Outcome.Header)
		if len(c.Header) == 0 {
			c.Header = nil
		}
		if len(c.Outcome.Header) == 0 {
			c.Outcome.Header = nil
		}
		if len(c.Attributes) == 0 {
			c.Attributes = nil
		}
		if len(c.Key) == 0 {
			c.Key = nil
		}
	}
	return all
}
