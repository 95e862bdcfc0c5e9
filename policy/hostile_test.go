package policy

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

func TestHostileRequests(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../policyfile/testdata/good/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Parse("everything.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	e := NewEngine(memory.New(), p)
	bodies := []func(int64) ([]byte, error){
		nil, func(int64) ([]byte, error) { return nil, nil }, func(int64) ([]byte, error) { return nil, io.ErrUnexpectedEOF },
		func(int64) ([]byte, error) { return []byte(`{"user.name":"\ud800"}`), nil },
	}
	for _, r := range []*Request{
		{}, {Path: "*", Method: "OPTIONS"}, {Path: strings.Repeat("/a", 1<<16)}, {Path: strings.Repeat("/%2e%2e;", 1<<16)},
		{Path: "/\x00\xff%zz", Method: "\xff", Host: "\xff:\x00"}, {Host: strings.Repeat(".", 1<<16)},
		{Path: "/api/x", RawQuery: strings.Repeat("user=%zz&", 1<<15), Host: "x.example.com"},
		{Path: "/jobs", Method: "POST", Header: http.Header{"X-Api-Key": {strings.Repeat("\xff", 1<<20)}, "Cookie": {strings.Repeat("session=1;", 1<<12)}}},
	} {
		for _, body := range bodies {
			r.Body = body
			first := e.Decide(t.Context(), r)
			if first.Degraded || first.Unavailable || first.Err != nil {
				t.Errorf("%.40q: %+v", r.Path, first)
			}
			if x := e.Explain(t.Context(), r).Decision; len(x.Results) != len(first.Results) || x.Missing != first.Missing {
				t.Errorf("%.40q: explained as %+v", r.Path, x)
			}
		}
	}
}
