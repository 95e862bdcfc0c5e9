package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// parsed returns the entry of a line as JSON, sorted by name and without empty values.
func parsed(f *Format, line []byte, e *Entry) string {
	all := map[string]any{}
	switch err := f.Parse(line, e); {
	case errors.Is(err, ErrSkip):
		all["skip"] = true
	case err != nil:
		all["error"] = err.Error()
	default:
		all["time"] = time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano)
		for name, text := range map[string][]byte{
			"client": e.Client, "forwarded": e.Forwarded, "user": e.User, "method": e.Method, "target": e.Target,
			"host": e.Host, "referer": e.Referer, "user_agent": e.UserAgent, "id": e.ID,
		} {
			if len(text) > 0 {
				all[name] = string(text)
			}
		}
		for name, fields := range map[string][]Field{"headers": e.Headers, "attributes": e.Attributes} {
			var list [][2]string
			for _, f := range fields {
				list = append(list, [2]string{string(f.Name), string(f.Value)})
			}
			if list != nil {
				all[name] = list
			}
		}
		if e.Ended {
			all["ended"] = true
		}
		if e.Status != 0 {
			all["status"] = e.Status
		}
		if e.Sent >= 0 {
			all["sent"] = e.Sent
		}
		if e.Duration >= 0 {
			all["duration"] = (time.Duration(e.Duration) * time.Microsecond).String()
		}
	}
	text, _ := json.Marshal(all)
	return string(text)
}

func lookup(t testing.TB, name string, o Options) *Format {
	t.Helper()
	f, err := Lookup(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func strictly(t testing.TB, data string, v any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// cases returns the cases of testdata/formats. A case begins with these settings:
//
//	format: json                    the first argument of Lookup
//	fields: {"client":"peer.addr"}  Options.Fields, if any
//	tells: {"client":true}          the expected Tells of the lines, if any
//
// A step is a line of a log, and its result is the entry in the format of [parsed], or "directive". The results were
// written by hand from the documentation of the formats.
func cases(t testing.TB) (all []testkit.Case) {
	t.Helper()
	files, err := filepath.Glob("testdata/formats/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		all = append(all, testkit.Script(t, file)...)
	}
	return all
}

// Each line is read as the case states, with at most one allocation, and the format is detected from its lines.
func TestFormats(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.Name, func(t *testing.T) { checkFormat(t, &c) })
	}
}

func checkFormat(t *testing.T, c *testkit.Case) {
	var options Options
	settings := map[string]string{}
	for line := range strings.SplitSeq(c.Setup, "\n") {
		name, value, _ := strings.Cut(line, ": ")
		settings[name] = value
	}
	if fields := settings["fields"]; fields != "" {
		strictly(t, fields, &options.Fields)
	}
	spec := settings["format"]
	f := lookup(t, spec, options)
	var e Entry
	var sample, accepted [][]byte
	c.Play(t, func(step string) string {
		line := []byte(step)
		sample = append(sample, line)
		if strings.HasPrefix(step, "#") {
			accepted = append(accepted, line)
			next, err := f.Header(line)
			if err != nil {
				t.Fatalf("%s: %v", step, err)
			}
			f = next
			return "directive"
		}
		got := parsed(f, line, &e)
		if !strings.HasPrefix(got, `{"error":`) {
			accepted = append(accepted, line)
			if n := testing.AllocsPerRun(20, func() { _ = f.Parse(line, &e) }); n > 1 {
				t.Errorf("%s: %v allocations", step, n)
			}
		}
		return got
	})
	if settings["tells"] != "" {
		var want Tells
		strictly(t, settings["tells"], &want)
		if got := f.Narrow(sample).Tells; !reflect.DeepEqual(got, want) {
			t.Errorf("%q: Tells are %+v, want %+v", sample, got, want)
		}
	}
	if options.Fields != nil || settings["tells"] != "" || strings.ContainsAny(spec, "$%") || len(accepted) == 0 {
		return
	}
	if found, err := Detect(accepted, Options{}); err != nil || found.Name != spec {
		t.Errorf("%s is detected as %v: %v", spec, found, err)
	}
}

// A format is detected if at least 95 % of the lines match it. Otherwise the error reports how many lines each format
// matches.
func TestDetect(t *testing.T) {
	lines := make([][]byte, 100)
	for i := range lines {
		lines[i] = []byte(`192.0.2.1 - - [20/Nov/2026:10:15:32 +0100] "GET / HTTP/1.1" 200 5 "-" "-"`)
	}
	for i := range 5 {
		lines[i*7] = []byte("garbage")
	}
	if f, err := Detect(lines, Options{}); err != nil || f.Name != "combined" {
		t.Error(f, err)
	}
	lines[50] = []byte("garbage")
	for _, c := range []struct {
		lines [][]byte
		says  []string
	}{
		{lines, []string{"combined 94 of 100", "--format"}},
		{[][]byte{[]byte("x"), []byte("y")}, []string{"none reads any of the first 2 lines"}},
		{[][]byte{{}}, []string{"no line is a request"}},
	} {
		for _, want := range c.says {
			if _, err := Detect(c.lines, Options{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, without %q", err, want)
			}
		}
	}
}

// The columns in a directive determine the Tells of the format. Some columns are required.
func TestHeader(t *testing.T) {
	cloud := cloudFront(Options{})
	next, err := cloud.Header([]byte("#Fields: date time c-ip cs-uri-stem cs(X-Api-Key) cs(Cookie)"))
	if err != nil || !reflect.DeepEqual(next.Tells, Tells{Client: true, Headers: []string{"X-Api-Key", "Cookie"}}) {
		t.Errorf("%+v, %v", next, err)
	}
	for _, bad := range []string{"#Fields: date c-ip cs-uri-stem", "#Fields:", "#Fields: date time c-ip"} {
		if _, err := cloud.Header([]byte(bad)); err == nil {
			t.Errorf("%q is accepted as a header", bad)
		}
	}
	if same, err := next.Header([]byte("#Date: 2026-11-20")); err != nil || same != next {
		t.Error("another directive changes the format")
	}
}

// The error describes the mistake in a format or in a map of fields.
func TestFormatsThatDoNotCompile(t *testing.T) {
	for _, row := range testkit.SectionOf(t, "testdata/mistakes.txt", "formats").Rows(t) {
		if _, err := Lookup(row.In, Options{}); err == nil || !strings.Contains(err.Error(), row.Want) {
			t.Errorf("%q: %v, want %q", row.In, err, row.Want)
		}
	}
	if _, err := Lookup(strings.Repeat("$status ", 65)+"$msec", Options{}); err == nil || !strings.Contains(err.Error(), "66 variables") {
		t.Errorf("66 variables: %v", err)
	}
	for _, row := range testkit.SectionOf(t, "testdata/mistakes.txt", "fields").Rows(t) {
		name, path, _ := strings.Cut(row.In, "=")
		o := Options{Fields: map[string]string{name: path}}
		_, looked := Lookup("json", o)
		_, detected := Detect(nil, o)
		for _, err := range []error{looked, detected} {
			if err == nil || !strings.Contains(err.Error(), row.Want) {
				t.Errorf("%s: %v", row.In, err)
			}
		}
	}
}

// Each format reads or refuses any line, with the same result for a new and a used Entry. It does not change the line,
// and its numbers stay in their ranges.
func FuzzFormats(f *testing.F) {
	var all []*Format
	for _, format := range formats {
		all = append(all, lookup(f, format.name, Options{}))
	}
	all = append(all, lookup(f, servers[1].spec, Options{}))
	for _, c := range cases(f) {
		for _, line := range c.Steps() {
			f.Add([]byte(line))
		}
	}
	used := new(Entry)
	f.Fuzz(func(t *testing.T, line []byte) {
		before := bytes.Clone(line)
		for _, format := range all {
			first := parsed(format, line, new(Entry))
			if again := parsed(format, line, used); first != again {
				t.Errorf("%s reads %q as %s and as %s", format.Name, line, first, again)
			}
			if !bytes.Equal(before, line) {
				t.Errorf("%s changes the line", format.Name)
			}
			if e := used; strings.Contains(first, `"time":"`) && (e.Status < 0 || e.Status > 999 || e.Sent < -1 || e.Duration < -1) {
				t.Errorf("%s reads %q as %s", format.Name, line, first)
			}
			if len(line) > 0 && line[0] == '#' && format.Directives() {
				if next, err := format.Header(line); err == nil {
					parsed(next, bytes.ReplaceAll(line, []byte(" "), []byte("\t")), used)
				}
			}
		}
	})
}
