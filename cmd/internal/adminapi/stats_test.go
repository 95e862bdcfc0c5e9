package adminapi_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// aView returns a view with three denials of two subjects in the current step, and a thousand requests one hour before.
func aView() *telemetry.View {
	at := time.Date(2026, 11, 22, 10, 0, 5, 0, time.UTC)
	v := &telemetry.View{At: at, Since: at.Add(-2 * time.Hour)}
	r := telemetry.Rule{Name: "per-key", Usual: -1}
	r.Recent, r.Days = make([]telemetry.Counts, telemetry.RecentSteps), make([]telemetry.Counts, telemetry.LongSteps)
	r.Recent[0][telemetry.Allow] = 1000
	r.Recent[len(r.Recent)-1][telemetry.Deny] = 3
	r.Days[len(r.Days)-289][telemetry.Allow] = 7 // more than a day ago
	r.Days[len(r.Days)-288][telemetry.Allow] = 1000
	r.Days[len(r.Days)-1][telemetry.Deny] = 3
	r.Refused[telemetry.Hour], r.Near[telemetry.Day] = 2, 4
	r.Refusals[telemetry.Hour] = telemetry.Top{Items: []telemetry.Subject{
		{ID: "id-1", Key: "per-key/k-1", Shown: "k-1", Count: 2, Error: 1, First: at.Add(-time.Minute), Last: at, Minutes: 1},
		{ID: "id-2", Key: "per-key/k-2", Shown: "k-2", Count: 1, Minutes: 1},
	}, Total: 3}
	other := telemetry.Rule{Name: "per-address", Series: r.Series, Usual: 0.5}
	other.Traffic[telemetry.Minute] = telemetry.Top{Items: []telemetry.Subject{{ID: "id-3", Key: "per-address/192.0.2.7", Sent: "per-address/192.0.2.7", Shown: "192.0.2.7", Count: 9}}}
	other.Refusals[telemetry.Hour] = telemetry.Top{Items: []telemetry.Subject{{ID: "id-3", Key: "per-address/192.0.2.7", Sent: "per-address/192.0.2.7", Shown: "192.0.2.7", Count: 9}}}
	login := telemetry.Rule{Name: "login"}
	login.Refusals[telemetry.Hour].Items = []telemetry.Subject{
		{ID: "id-4", Key: "login/192.0.2.7/lucu", Sent: "login/192.0.2.7/Lucy", Shown: "192.0.2.7 · Lucy", Count: 3},
	}
	v.All, v.Rules = r.Series, []telemetry.Rule{r, other, login}
	v.Instances = []telemetry.Instance{{Name: "a", Self: true, Started: v.Since, Seen: at, Store: telemetry.Store{Kind: "memory", Keys: 3}, Took: telemetry.Latency{Count: 1003, P99: time.Millisecond}}}
	v.Events = []telemetry.Event{{At: at, Kind: "reload", Text: "a reload", Instance: "a"}}
	return v
}

// counted implements Telemetry with fixed values.
type counted struct {
	view     func() *telemetry.View
	find     func(id string) (string, bool)
	refusals telemetry.FoundRefusals
}

func (c *counted) View() *telemetry.View         { return c.view() }
func (c *counted) Find(id string) (string, bool) { return c.find(id) }
func (c *counted) FindRefusals(context.Context, string) telemetry.FoundRefusals {
	return c.refusals
}

// watched serves the view of aView.
func watched(t *testing.T, change func(*setup)) *server {
	v := aView()
	return start(t, func(c *setup) {
		find := func(id string) (string, bool) {
			for _, r := range v.Rules {
				for _, s := range r.Refusals[telemetry.Hour].Items {
					if s.ID == id {
						return cmp.Or(s.Sent, s.Key), true
					}
				}
			}
			return "", false
		}
		c.Telemetry = &counted{view: func() *telemetry.View { return v }, find: find}
		if change != nil {
			change(c)
		}
	})
}

func TestStats(t *testing.T) {
	s := watched(t, nil)
	var got control.Stats
	s.Do("GET", "/v1/stats", "").Want(200).Into(&got)
	if len(got.Rules) != 3 || len(got.Instances) != 1 || len(got.Events) != 1 {
		t.Fatalf("%+v", got)
	}
	r := got.Rules[0]
	if r.Rule != "per-key" || strings.Join(r.Limits, " ") != "100/day burst 20" || r.Usual != nil || r.Series != nil {
		t.Errorf("%+v", r)
	}
	for name, test := range map[string]struct {
		counts      control.Counts
		allow, deny uint64
	}{"minute": {r.Requests.Minute, 0, 3}, "hour": {r.Requests.Hour, 1000, 3}, "day": {r.Requests.Day, 1000, 3}, "all": {got.Requests.Hour, 1000, 3}} {
		if test.counts["allow"] != test.allow || test.counts["deny"] != test.deny {
			t.Errorf("%s: %v", name, test.counts)
		}
	}
	// The rate covers the five seconds of the current step and the ten seconds of the step before: 3 in 15 s.
	if r.Requests.Rate["deny"] != 0.2 || r.Requests.Rate["allow"] != 0 {
		t.Errorf("%v", r.Requests.Rate)
	}
	if r.Refused.Hour != 2 || r.Near.Day != 4 || got.Rules[1].Usual == nil || *got.Rules[1].Usual != 0.5 {
		t.Errorf("%+v", got.Rules)
	}
	if took := got.Instances[0].Took; took.P99 != 0.001 || took.Count != 1003 {
		t.Errorf("%+v", took)
	}
	start(t, nil).Do("GET", "/v1/stats", "").Want(409).Says("--telemetry")
}

// The stats of a rule contain the percentage of requests for which it is enforced, and that it is in shadow mode if the
// whole policy is.
func TestStatsSayWhatIsEnforced(t *testing.T) {
	v := aView()
	doc := policy.Document{Rules: []policy.Rule{
		{Name: "per-key", Key: []string{"api_key"}, Limit: "1/day", Enforce: "10%"}, {Name: "per-address", Key: []string{"client_ip"}, Limit: "1/day"},
	}}
	for _, shadow := range []string{"", policy.ShadowAlways} {
		doc.Shadow = shadow
		stack, p := inForce(t, doc)
		s := start(t, func(c *setup) {
			c.Telemetry = &counted{view: func() *telemetry.View { return v }}
			c.Stack = stack
			c.Engine = policy.NewEngine(memory.New(), p)
		})
		var got control.Stats
		s.Do("GET", "/v1/stats", "").Want(200).Into(&got)
		if r := got.Rules; r[0].Enforce != "10%" || r[1].Enforce != "" || r[0].Shadow != (shadow != "") || r[1].Shadow != (shadow != "") {
			t.Errorf("shadow %q: %+v", shadow, r)
		}
	}
}

func TestRuleStats(t *testing.T) {
	s := watched(t, nil)
	var got control.RuleStats
	s.Do("GET", "/v1/rules/per-key/stats", "").Want(200).Into(&got)
	recent, days := got.Series.Recent, got.Series.Days
	if recent.Seconds != 10 || len(recent.Counts["deny"]) != 360 || recent.Counts["deny"][359] != 3 || recent.Counts["allow"][0] != 1000 {
		t.Errorf("%+v", recent)
	}
	// The last of 360 steps begins at 10:00:00, so the first one began 3590 s earlier.
	if want := time.Date(2026, 11, 22, 9, 0, 10, 0, time.UTC); !recent.Begin.Equal(want) {
		t.Errorf("begins at %v, want %v", recent.Begin, want)
	}
	if want := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC); days.Seconds != 300 || !days.Begin.Equal(want) {
		t.Errorf("begins at %v, want %v", days.Begin, want)
	}
}

// The stream sends the stats whenever they change, to a limited number of clients. It ends when the token expires, the
// client leaves, or the server stops.
func TestEvents(t *testing.T) {
	var view atomic.Pointer[telemetry.View]
	view.Store(aView())
	done := make(chan struct{})
	tokens := make(chan []source.TokenRow, 1)
	all, _ := roles()
	tokens <- all
	s := start(t, func(c *setup) {
		c.Done = done
		c.Tokens = func() ([]source.TokenRow, error) { all := <-tokens; tokens <- all; return all, nil }
		c.Telemetry = &counted{view: view.Load}
	})
	s.Token = "viewer"
	s.Do("GET", "/v1/events", "").Want(200).Says("event: stats\n", `data: {"at":"2026-11-22T10:00:05Z"`)
	s.Do("GET", "/v1/events?rule=x", "").Want(400)

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	open := func(ctx context.Context) *bufio.Scanner {
		t.Helper()
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/v1/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer viewer")
		response, err := http.DefaultTransport.RoundTrip(r)
		for err == nil && response.StatusCode == 503 { // the server has not yet noticed the end of another stream
			_ = response.Body.Close()
			response, err = http.DefaultTransport.RoundTrip(r)
		}
		if err != nil || response.StatusCode != 200 || response.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%v %v", response, err)
		}
		t.Cleanup(func() { _ = response.Body.Close() })
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<20)
		return lines
	}
	next := func(lines *bufio.Scanner) (got control.Stats) {
		t.Helper()
		for lines.Scan() {
			if data, found := strings.CutPrefix(lines.Text(), "data: "); found {
				if err := json.Unmarshal([]byte(data), &got); err != nil {
					t.Fatal(err)
				}
				return got
			}
		}
		t.Fatal("the stream has ended")
		return got
	}
	first := open(t.Context())
	next(first)
	v := aView()
	v.At = v.At.Add(time.Second)
	view.Store(v)
	if got := next(first); !got.At.Equal(v.At) {
		t.Errorf("at %v, want %v", got.At, v.At)
	}
	// The number of streams is limited. A new stream is possible once a client has left.
	for range 6 {
		open(t.Context())
	}
	next(open(ctx))
	s.Do("GET", "/v1/events", "").Want(503).Says("too many streams")
	leave()
	for s.Do("GET", "/v1/stats", "").Want(200); ; {
		if a := s.Do("GET", "/v1/events", ""); a.Status == 200 {
			break
		}
	}
	// When a token is deleted or loses its role, its streams end.
	for _, left := range []source.TokenRow{
		{Name: "other", Hash: source.HashToken("other"), Role: source.Viewer}, {Name: "viewer", Hash: source.HashToken("viewer"), Role: source.Nobody},
	} {
		lost := open(t.Context())
		next(lost)
		<-tokens
		tokens <- []source.TokenRow{left}
		for lost.Scan() { // read to the end
		}
		<-tokens
		tokens <- all
	}
	last := open(t.Context())
	next(last)
	close(done)
	for last.Scan() {
	}
}
