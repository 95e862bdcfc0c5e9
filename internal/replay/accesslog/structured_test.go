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

// structured is an entry as golden files have it: what was not told is left out.
type structured struct {
	Time, Client, Forwarded, User, Method, Target, Host, Referer, UserAgent, ID, Duration string
	Ended                                                                                 bool
	Status                                                                                int
	Sent                                                                                  *int64
	Headers, Attributes                                                                   [][2]string
	Skip                                                                                  bool
	Error                                                                                 string
}

func tell(f *Format, line []byte, e *Entry) structured {
	switch err := f.Parse(line, e); {
	case errors.Is(err, ErrSkip):
		return structured{Skip: true}
	case err != nil:
		return structured{Error: err.Error()}
	}
	list := func(fields []Field) (all [][2]string) {
		for _, f := range fields {
			all = append(all, [2]string{string(f.Name), string(f.Value)})
		}
		return all
	}
	t := structured{
		Time: time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano), Ended: e.Ended, Client: string(e.Client),
		Forwarded: string(e.Forwarded), User: string(e.User), Method: string(e.Method), Target: string(e.Target),
		Host: string(e.Host), Referer: string(e.Referer), UserAgent: string(e.UserAgent), ID: string(e.ID),
		Status: e.Status, Headers: list(e.Headers), Attributes: list(e.Attributes),
	}
	if e.Sent >= 0 {
		sent := e.Sent
		t.Sent = &sent
	}
	if e.Duration >= 0 {
		t.Duration = (time.Duration(e.Duration) * time.Microsecond).String()
	}
	return t
}

// Each testdata/structured/NAME.log, or NAME~CASE.log, is read as testdata/structured/NAME.json has it, line by line, which
// was written by hand from what the makers of the formats say.
func TestStructured(t *testing.T) {
	files, err := filepath.Glob("testdata/structured/*.log")
	if err != nil || len(files) < 10 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		base := strings.TrimSuffix(file, ".log")
		t.Run(filepath.Base(base), func(t *testing.T) {
			want, err := os.ReadFile(base + ".json")
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(base), "~")
			options := goldenOptions(filepath.Base(base))
			f, err := Lookup(name, options)
			if err != nil {
				t.Fatal(err)
			}
			log, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			d := json.NewDecoder(bytes.NewReader(want))
			d.DisallowUnknownFields()
			var e Entry
			for n, line := range bytes.Split(bytes.TrimSuffix(log, []byte("\n")), []byte("\n")) {
				if bytes.HasPrefix(line, []byte("#")) && f.Directives() {
					if f, err = f.Header(line); err != nil {
						t.Fatalf("line %d: %v", n+1, err)
					}
					continue
				}
				var want structured
				if err := d.Decode(&want); err != nil {
					t.Fatalf("line %d of what is wanted: %v", n+1, err)
				}
				if got := tell(f, line, &e); !reflect.DeepEqual(got, want) {
					g, _ := json.Marshal(got)
					w, _ := json.Marshal(want)
					t.Errorf("line %d:\n%s\nis read as\n%s\nand not as\n%s", n+1, line, g, w)
				}
				if allocs := testing.AllocsPerRun(20, func() { _ = f.Parse(line, &e) }); allocs != 0 && !(want.Error != "" && options.Fields["layout"] != "") { // of package time, that says why
					t.Errorf("line %d: %v allocations", n+1, allocs)
				}
			}
			if d.More() {
				t.Error("more is wanted than there are lines")
			}
			if name == "json" && options.Fields != nil {
				return
			}
			// It is recognized, too, unless too many of its lines are hostile.
			if strings.Contains(base, "~hostile") {
				return
			}
			if found, err := Detect(bytes.Split(log, []byte("\n")), Options{}); err != nil || found.Name != name {
				t.Errorf("%s is taken for %v: %v", name, found, err)
			}
		})
	}
}

// goldenOptions are those of cases that need some.
func goldenOptions(base string) Options {
	switch base {
	case "json~fields":
		return Options{Fields: map[string]string{
			"client": "peer.addr", "time": "at", "duration_us": "took", "method": "rq.verb", "path": "rq.path", "query": "rq.query",
			"header:x-api-key": "rq.headers.x-api-key", "attr:plan": "user.plan", "attr:org": "user.org", "user": "user.id",
		}}
	case "json~layout":
		return Options{Fields: map[string]string{"time": "when", "layout": "Mon Jan _2 15:04:05.000 2006"}}
	}
	return Options{}
}
