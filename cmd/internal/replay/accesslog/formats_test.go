package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// section is a part of a file of testdata/formats, all of one format:
//
//	format: json                    a name or a description, as Lookup takes it
//	fields: {"client":"peer.addr"}  Options.Fields, if any
//	> {"peer.addr":"192.0.2.1"}     a line of a log
//	{"client":"192.0.2.1"}          the entry, which a directive does not have
//	tells: {"client":true}          the Tells of these lines, if they are compared
//
// Entries are written by hand from the documents of the formats. Empty fields are left out, and the
// error "unreadable" stands for any.
type section struct {
	format  string
	options Options
	lines   []sampled
	tells   []byte
}

type sampled struct {
	line []byte
	want []byte // JSON; nil of a directive
}

// parsed returns as JSON what is read of a line, without what is empty, and the names sorted.
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

func strictly(t testing.TB, data []byte, v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
}

// sections returns those of all files of testdata/formats, by file.
func sections(t testing.TB) map[string][]section {
	t.Helper()
	files, err := filepath.Glob("testdata/formats/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	all := map[string][]section{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var of []section
		for text := range bytes.Lines(data) {
			text = bytes.TrimSuffix(text, []byte("\n"))
			if spec, ok := bytes.CutPrefix(text, []byte("format: ")); ok {
				of = append(of, section{format: string(spec)})
				continue
			}
			s := &of[len(of)-1]
			if fields, ok := bytes.CutPrefix(text, []byte("fields: ")); ok {
				strictly(t, fields, &s.options.Fields)
			} else if tells, ok := bytes.CutPrefix(text, []byte("tells: ")); ok {
				s.tells = tells
			} else if line, ok := bytes.CutPrefix(text, []byte(">")); ok {
				s.lines = append(s.lines, sampled{line: bytes.TrimPrefix(line, []byte(" "))})
			} else if len(text) > 0 {
				s.lines[len(s.lines)-1].want = text
			}
		}
		all[strings.TrimSuffix(filepath.Base(file), ".txt")] = of
	}
	return all
}

// Each line is read as the table has it, without memory, and the format is recognized by its lines.
func TestFormats(t *testing.T) {
	for name, all := range sections(t) {
		t.Run(name, func(t *testing.T) {
			for _, s := range all {
				s.check(t)
			}
		})
	}
}

func (s *section) check(t *testing.T) {
	t.Helper()
	f := lookup(t, s.format, s.options)
	var e Entry
	var sample, accepted [][]byte
	for _, l := range s.lines {
		sample = append(sample, l.line)
		if l.want == nil {
			accepted = append(accepted, l.line)
			next, err := f.Header(l.line)
			if err != nil {
				t.Fatalf("%q: %v", l.line, err)
			}
			f = next
			continue
		}
		var fields map[string]any
		strictly(t, l.want, &fields)
		want, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		got := parsed(f, l.line, &e)
		if got != string(want) && !(fields["error"] == "unreadable" && strings.HasPrefix(got, `{"error":`)) {
			t.Errorf("%s:\n%s\nis read as\n%s\nand not as\n%s", s.format, l.line, got, want)
		}
		if fields["error"] == nil {
			accepted = append(accepted, l.line)
			if n := testing.AllocsPerRun(20, func() { _ = f.Parse(l.line, &e) }); n > 1 {
				t.Errorf("%q: %v allocations", l.line, n)
			}
		}
	}
	if s.tells != nil {
		var want Tells
		strictly(t, s.tells, &want)
		if got := f.Narrow(sample).Tells; !reflect.DeepEqual(got, want) {
			t.Errorf("%q tell %+v, not %+v", sample, got, want)
		}
	}
	if s.options.Fields != nil || s.tells != nil || strings.ContainsAny(s.format, "$%") || len(accepted) == 0 {
		return
	}
	if found, err := Detect(accepted, Options{}); err != nil || found.Name != s.format {
		t.Errorf("%s is recognized as %v: %v", s.format, found, err)
	}
}

// A format is taken if nearly all lines are of it. If not, the error says how near each came.
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
		{[][]byte{{}}, []string{"no line that tells of a request"}},
	} {
		for _, want := range c.says {
			if _, err := Detect(c.lines, Options{}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, without %q", err, want)
			}
		}
	}
}

// The names of columns in a directive say what the lines tell; some are necessary.
func TestHeader(t *testing.T) {
	cloud := cloudFront(Options{})
	next, err := cloud.Header([]byte("#Fields: date time c-ip cs-uri-stem cs(X-Api-Key) cs(Cookie)"))
	if err != nil || !reflect.DeepEqual(next.Tells, Tells{Client: true, Headers: []string{"X-Api-Key", "Cookie"}}) {
		t.Errorf("%+v, %v", next, err)
	}
	for _, bad := range []string{"#Fields: date c-ip cs-uri-stem", "#Fields:", "#Fields: date time c-ip"} {
		if _, err := cloud.Header([]byte(bad)); err == nil {
			t.Errorf("%q is a header", bad)
		}
	}
	if same, err := next.Header([]byte("#Date: 2026-11-20")); err != nil || same != next {
		t.Error("another directive changes the format")
	}
}

// The message says what is wrong with a format or with a map of fields.
func TestFormatsThatDoNotCompile(t *testing.T) {
	for spec, want := range map[string]string{
		"$remote_addr$remote_user [$time_local]":  "nothing between $remote_addr and $remote_user",
		"$remote_addr $request":                   "does not say when",
		"$remote_addr [$time_local] $":            "no name",
		"log_format main":                         "no log format", // has no variable and is a name
		"log_format main '$remote_addr":           "not closed",
		"log_format main $remote_addr":            "not in quotes",
		"escape=xml $time_local":                  "escape=xml",
		"%h%u %t":                                 "nothing between %h and %u",
		"%h %{Referer":                            "not closed",
		"%h %{%Q}t":                               "not known",
		"%h %t %":                                 "ends within",
		`LogFormat "%h %t`:                        "not closed",
		"%START_TIME% %REQ(:METHOD)%%REQ(:PATH)%": "nothing between %REQ(:METHOD)% and %REQ(:PATH)%",
		"%START_TIME(%Y%":                         "not closed",
		"%START_TIME% %PROTOCOL":                  "not closed",
		"%ci:%cp [%tr] %ft":                       "%c is not known",
		"combinde":                                `no log format "combinde"`,
		strings.Repeat("$status ", 65) + "$msec":  "66 variables",
		"$time_local$remote_addr":                 "nothing between $time_local",
	} {
		if _, err := Lookup(spec, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, and not %q", spec, err, want)
		}
	}
	for _, c := range []struct{ name, path, says string }{
		{"clinet", "a", `"clinet"`}, {"client", "", "no path"}, {"client", "a b", "no path"}, {"client", strings.Repeat("a.", 20) + "b", "no path"},
		{"header:", "a", `"header:"`}, {"layout", "no time", "layout"}, {"layout", "", "layout"}, {"attr:x", strings.Repeat("x", 300), "no path"},
	} {
		o := Options{Fields: map[string]string{c.name: c.path}}
		_, looked := Lookup("json", o)
		_, detected := Detect(nil, o)
		for _, err := range []error{looked, detected} {
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s=%s: %v", c.name, c.path, err)
			}
		}
	}
}

// FuzzFormats gives any line to every format. It is read or not, the same way each time, with any memory,
// and never beyond the line and the entry. The format that is read by hand is read by the compiler alike.
func FuzzFormats(f *testing.F) {
	var all []*Format
	for _, format := range formats {
		all = append(all, lookup(f, format.name, Options{}))
	}
	all = append(all, lookup(f, servers[1].spec, Options{}))
	for _, of := range sections(f) {
		for _, s := range of {
			for _, l := range s.lines {
				f.Add(l.line)
			}
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

// BenchmarkParse reads the readable lines of each file of the table.
func BenchmarkParse(b *testing.B) {
	for name, all := range sections(b) {
		s := all[0]
		f := lookup(b, s.format, s.options)
		var lines [][]byte
		for _, l := range s.lines {
			if l.want != nil && f.Parse(l.line, new(Entry)) == nil {
				lines = append(lines, l.line)
			}
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var e Entry
			for i := 0; b.Loop(); i++ {
				if err := f.Parse(lines[i%len(lines)], &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
