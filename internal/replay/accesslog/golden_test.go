package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// told is an entry as golden files write it, by hand.
type told struct {
	Time      string            `json:"time,omitempty"`
	Ended     bool              `json:"ended,omitempty"`
	Client    string            `json:"client,omitempty"`
	Forwarded string            `json:"forwarded,omitempty"`
	User      string            `json:"user,omitempty"`
	Method    string            `json:"method,omitempty"`
	Target    string            `json:"target,omitempty"`
	Host      string            `json:"host,omitempty"`
	Status    int               `json:"status,omitempty"`
	Sent      *int64            `json:"sent,omitempty"`
	Duration  string            `json:"duration,omitempty"`
	Referer   string            `json:"referer,omitempty"`
	UserAgent string            `json:"user_agent,omitempty"`
	ID        string            `json:"id,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
	Error     string            `json:"error,omitempty"`
}

func tellEntry(e *Entry, err error) told {
	if err != nil {
		if errors.Is(err, ErrSkip) {
			return told{Error: "skip"}
		}
		return told{Error: "unreadable"}
	}
	t := told{
		Time: time.UnixMicro(e.Time).UTC().Format(time.RFC3339Nano), Ended: e.Ended, Client: string(e.Client), Forwarded: string(e.Forwarded),
		User: string(e.User), Method: string(e.Method), Target: string(e.Target), Host: string(e.Host), Status: e.Status,
		Referer: string(e.Referer), UserAgent: string(e.UserAgent), ID: string(e.ID),
	}
	if e.Sent >= 0 {
		t.Sent = &e.Sent
	}
	if e.Duration >= 0 {
		t.Duration = (time.Duration(e.Duration) * time.Microsecond).String()
	}
	for _, h := range e.Headers {
		if t.Headers == nil {
			t.Headers = map[string]string{}
		}
		t.Headers[string(h.Name)] = string(h.Value)
	}
	return t
}

// Each line of testdata/*.log comes to the JSON on the same line of *.golden. A line "format: …" names
// the format of those after it.
func TestGolden(t *testing.T) {
	logs, err := filepath.Glob("testdata/*.log")
	if err != nil || len(logs) == 0 {
		t.Fatal(logs, err)
	}
	for _, name := range logs {
		t.Run(filepath.Base(name), func(t *testing.T) {
			lines, want := fileLines(t, name), fileLines(t, strings.TrimSuffix(name, "log")+"golden")
			if len(lines) != len(want) {
				t.Fatalf("%d lines and %d in the golden file", len(lines), len(want))
			}
			var f *Format
			var e Entry
			for i, line := range lines {
				if spec, ok := bytes.CutPrefix(line, []byte("format: ")); ok {
					if f, err = Lookup(string(spec), Options{}); err != nil {
						t.Fatal(err)
					}
					continue
				}
				if f.Directives() && bytes.HasPrefix(line, []byte("#")) {
					if f, err = f.Header(line); err != nil {
						t.Fatal(err)
					}
					continue
				}
				var expected told
				decode := json.NewDecoder(bytes.NewReader(want[i]))
				decode.DisallowUnknownFields()
				if err := decode.Decode(&expected); err != nil {
					t.Fatalf("line %d of the golden file: %v", i+1, err)
				}
				err := f.Parse(line, &e)
				got, _ := json.Marshal(tellEntry(&e, err))
				if again, _ := json.Marshal(expected); !bytes.Equal(got, again) {
					t.Errorf("line %d: %q\n is  %s (%v)\nnot  %s", i+1, line, got, err, again)
				}
			}
		})
	}
}

func fileLines(t *testing.T, name string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))
}
