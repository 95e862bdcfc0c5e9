package console

import (
	"context"
	"fmt"
	"hash/crc32"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// written is the policy of the fixture.
var written = policy.Document{
	Tiers:    policy.Tiers{Subject: "api_key"},
	Subjects: []policy.TierSubject{{Subject: "sk_live_gold_9f", Tier: "gold"}},
	Rules: []policy.Rule{
		{Name: "login-address", Match: []string{"POST /login"}, Key: []string{"client_ip"}, Limit: "10/minute"},
		{Name: "login-account", Match: []string{"POST /login"}, Key: []string{"header:X-Account"}, Limit: "5/15m", Algorithm: "sliding_window_log"},
		{Name: "api", Match: []string{"/v1/"}, Key: []string{"api_key"}, Limits: []string{"10/second burst 20", "1000/hour"}, Tiers: map[string]policy.Limits{
			"gold": {"200/second"}, "free": {"2/second"}}},
		{Name: "search", Match: []string{"GET /search"}, Key: []string{"client_ip"}, Limit: "30/minute"},
		{Name: "uploads", Match: []string{"POST /files"}, Key: []string{"api_key"}, Limit: "100/day"},
		{Name: "crawlers", Match: []string{"/"}, Key: []string{"header:User-Agent"}, Limit: "60/minute", Shadow: true},
		{Name: "exports", Match: []string{"GET /export"}, Key: []string{"api_key"}, Limit: "2/hour", Shadow: true},
	},
}

// seen is a Telemetry that returns a view.
type seen func() *telemetry.View

func (s seen) View() *telemetry.View { return s() }

func (s seen) Find(id string) (key string, ok bool) {
	v := s()
	for i := range v.Rules {
		for _, top := range v.Rules[i].Refusals {
			for _, one := range top.Items {
				if one.ID == id {
					return one.Key, true
				}
			}
		}
	}
	return "", false
}

func (s seen) FindRefusals(context.Context, string) (none telemetry.FoundRefusals) {
	return none
}

// over is the Config of a console with the engine behind it.
type over struct {
	Config
	Engine *policy.Engine
}

// fixture returns the Config of a console with the policy of the fixture and the telemetry of a view. Its tokens are
// "viewer", "operator" and "admin".
func fixture(t testing.TB, view func() *telemetry.View) over {
	t.Helper()
	engine := policy.NewEngine(memory.New(), nil)
	doc := written
	doc.Overrides = []policy.Override{{
		Rule: "search", Key: map[string]string{"client_ip": "198.51.100.24"}, Limit: "300/minute", Until: time.Now().Add(3 * time.Hour).UTC().Format(time.RFC3339),
	}}
	return over{configOf(t, engine, &source.Stack{Swap: engine.Swap}, doc, seen(view)), engine}
}

// configOf returns the Config of a console with an engine that has doc as its policy file.
func configOf(t testing.TB, engine *policy.Engine, stack *source.Stack, doc policy.Document, counts control.Telemetry) Config {
	t.Helper()
	_, err := stack.File(doc, nil)
	if err == nil {
		err = stack.UseFile()
	}
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	return Config{
		Control: control.New(control.Config{Engine: engine, Stack: stack, Telemetry: counts, Logger: log}),
		Access:  &access.Access{Tokens: roleTokens},
		Version: "v0.9.0", Try: "curl -i http://localhost:8099/", Logger: log,
	}
}

// roleTokens returns a token for each role, which is the name of the role.
func roleTokens() (all []source.TokenRow, err error) {
	for _, r := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		all = append(all, source.TokenRow{Name: r.String(), Hash: source.HashToken(r.String()), Role: r})
	}
	return all, nil
}

// attack returns the view of two instances: a day and a half of traffic, and an attack on a login in the last 14
// minutes.
func attack(now time.Time) *telemetry.View {
	v := &telemetry.View{At: now, Since: now.Add(-36 * time.Hour)}
	rates := []struct{ allow, delayed, degraded, deny, would float64 }{
		{4, 0, 0, 0.15, 0}, {4, 0, 0, 0.02, 0}, {182, 6, 0, 0.6, 0}, {31, 0, 0, 0.2, 0}, {2, 0, 0, 0, 0}, {220, 0, 0, 0, 1.4}, {0.4, 0, 0, 0, 0.01},
	}
	add := func(into *[]telemetry.Counts, step time.Duration, n int, seed float64, rate func(at time.Time) [5]float64) {
		begin := now.Truncate(step).Add(-time.Duration(n-1) * step)
		for i := range n {
			at := begin.Add(time.Duration(i) * step)
			lasts := min(step, now.Sub(at)).Seconds()
			if at.Before(v.Since) {
				*into = append(*into, telemetry.Counts{})
				continue
			}
			wave := 1 + 0.25*math.Sin(float64(at.Unix())/5200+seed) + 0.1*math.Sin(float64(at.Unix())/170+seed*3) + 0.05*math.Sin(float64(at.Unix())/23+seed)
			var c telemetry.Counts
			for o, r := range rate(at) {
				c[o] = uint64(r*wave*lasts + 0.5)
			}
			*into = append(*into, c)
		}
	}
	began := now.Add(-14 * time.Minute)
	ended := now.Add(-47 * time.Minute)
	for i, r := range rates {
		rule := telemetry.Rule{Name: written.Rules[i].Name, Usual: r.deny}
		rate := func(at time.Time) [5]float64 {
			out := [5]float64{r.allow, r.delayed, r.degraded, r.deny, r.would}
			if i == 0 && at.After(began) {
				out[telemetry.Deny] = 38
				out[telemetry.Allow] = 6
			}
			if i == 2 && at.After(ended) && at.Before(ended.Add(5*time.Minute)) {
				out[telemetry.Degraded], out[telemetry.Allow] = 120, 60
			}
			return out
		}
		add(&rule.Recent, telemetry.Step, telemetry.RecentSteps, float64(i), rate)
		add(&rule.Days, telemetry.LongStep, telemetry.LongSteps, float64(i), rate)
		v.Rules = append(v.Rules, rule)
	}
	sumUp := func(of func(*telemetry.Rule) []telemetry.Counts) []telemetry.Counts {
		all := make([]telemetry.Counts, len(of(&v.Rules[0])))
		for i := range v.Rules[:5] { // the shadow rules count the same requests again
			for j, c := range of(&v.Rules[i]) {
				all[j].Add(&c)
			}
		}
		for j, c := range of(&v.Rules[5]) {
			all[j][telemetry.WouldDeny] += c[telemetry.WouldDeny]
		}
		return all
	}
	v.All.Recent = sumUp(func(r *telemetry.Rule) []telemetry.Counts { return r.Recent })
	v.All.Days = sumUp(func(r *telemetry.Rule) []telemetry.Counts { return r.Days })

	subject := func(rule, key string, count, err uint64, since time.Duration) telemetry.Subject {
		return telemetry.Subject{
			ID: fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(rule+key))), Key: rule + "/" + key, Shown: key, Count: count, Error: err,
			First: now.Add(-since), Last: now.Add(-2 * time.Second), Minutes: min(60, int(since.Minutes())),
		}
	}
	login := &v.Rules[0]
	v.Tiers = []telemetry.Tier{{Name: "gold"}}
	for w := range telemetry.Window(telemetry.Windows) {
		scale := []uint64{1, 14, 15}[w]
		top := telemetry.Top{Error: 4 * scale}
		top.Items = append(top.Items, subject("login-address", "203.0.113.7", 2144*scale, 0, 14*time.Minute))
		for i := range 24 {
			top.Items = append(top.Items, subject("login-address", fmt.Sprintf("198.51.100.%d", 20+i), uint64(40-i)*scale/2+1, uint64(i%3)*2, time.Duration(10+i)*time.Minute))
		}
		for i := range top.Items {
			top.Total += top.Items[i].Count
		}
		login.Refusals[w] = top
		traffic := telemetry.Top{Error: 6 * scale}
		for _, t := range top.Items {
			t.Count += 10 * scale
			traffic.Items = append(traffic.Items, t)
		}
		for i := range 40 {
			traffic.Items = append(traffic.Items, subject("login-address", fmt.Sprintf("192.0.2.%d", i), uint64(9-i/5)*scale, 0, 40*time.Minute))
		}
		for i := range traffic.Items {
			traffic.Total += traffic.Items[i].Count
		}
		login.Traffic[w] = traffic
		login.Refused[w], login.Asked[w], login.Near[w] = 25, []uint64{96, 1840, 21400}[w], []uint64{11, 160, 900}[w]
		api := &v.Rules[2]
		api.Refusals[w] = telemetry.Top{Total: 37 * scale, Items: []telemetry.Subject{
			subject("api", "sk_live_gold_9f", 31*scale, 0, 52*time.Minute), subject("api", "sk_test_c2", 6*scale, 0, 9*time.Minute)}}
		api.Refused[w], api.Asked[w], api.Near[w] = 2, []uint64{140, 812, 930}[w], []uint64{600, 31000, 400000}[w]
		gold := &v.Tiers[0]
		gold.Refusals[w], gold.Refused[w], gold.Asked[w] = telemetry.Top{Total: 31 * scale, Items: api.Refusals[w].Items[:1:1]}, 1, 3
		gold.Traffic[w] = telemetry.Top{Total: 310 * scale, Items: []telemetry.Subject{subject("api", "sk_live_gold_9f", 310*scale, 0, 52*time.Minute)}}
		v.Rules[5].Refusals[w] = telemetry.Top{Total: 80 * scale, Items: []telemetry.Subject{subject("crawlers", "Bytespider", 70*scale, 0, 3*time.Hour)}}
		v.Rules[5].Refused[w] = []uint64{3, 9, 14}[w]
	}
	v.Instances = []telemetry.Instance{
		{Name: "gw-a1", Self: true, Started: v.Since, Seen: now, Version: "v0.9.0", Policy: "7c31f0", Took: telemetry.Latency{Count: 9000, P50: 90 * time.Microsecond, P99: 640 * time.Microsecond},
			Store: telemetry.Store{Kind: "redis", Shards: 3, Took: telemetry.Latency{Count: 2200, P50: 300 * time.Microsecond, P99: 1200 * time.Microsecond}}},
		{Name: "gw-b2", Started: now.Add(-50 * time.Minute), Seen: now.Add(-time.Second), Version: "v0.9.0", Policy: "5b02aa", Differs: true, Took: telemetry.Latency{Count: 8800, P50: 90 * time.Microsecond, P99: 1300 * time.Microsecond},
			Store: telemetry.Store{Kind: "redis", Shards: 3, Took: telemetry.Latency{Count: 2100, P50: 400 * time.Microsecond, P99: 3800 * time.Microsecond}}},
	}
	v.Events = []telemetry.Event{
		{At: now.Add(-15 * time.Minute), Kind: "reload", Text: "the policy was reloaded: 7 rules", Instance: "gw-a1"},
		{At: ended, Kind: "circuit", Text: "circuit to shard 2 opened", Instance: "gw-b2"},
		{At: now.Add(-50 * time.Minute), Kind: "start", Text: "started", Instance: "gw-b2"},
	}
	return v
}

// outage is attack, but one instance cannot reach a shard, and a third has stopped reporting.
func outage(now time.Time) *telemetry.View {
	v := attack(now)
	v.Instances[1].Store.Unavailable, v.Instances[1].Store.Local = 1, 340
	v.Instances = append(v.Instances, telemetry.Instance{Name: "gw-c3", Started: v.Since, Seen: now.Add(-40 * time.Second), Stale: true, Version: "v0.8.2", Policy: "7c31f0", Store: telemetry.Store{Kind: "redis", Shards: 3, Evicted: 12}})
	return v
}

// quiet is the view of one instance without the attack and without denials.
func quiet(now time.Time) *telemetry.View {
	v := attack(now)
	still := func(list []telemetry.Counts) {
		for i := range list {
			list[i] = telemetry.Counts{telemetry.Allow: list[i].Total()}
		}
	}
	still(v.All.Recent)
	still(v.All.Days)
	for i := range v.Rules {
		r := &v.Rules[i]
		still(r.Recent)
		still(r.Days)
		r.Refusals, r.Refused, r.Usual = [telemetry.Windows]telemetry.Top{}, [telemetry.Windows]uint64{}, 0
	}
	v.Rules[6].Series = telemetry.Series{}
	v.Instances = v.Instances[:1]
	v.Events, v.Tiers = nil, nil
	return v
}

// spend uses up some of the limit of three of the attack's subjects.
func spend(t testing.TB, e *policy.Engine) {
	t.Helper()
	for i, address := range []string{"203.0.113.7", "198.51.100.20", "198.51.100.21"} {
		s, err := e.Subject("login-address", map[string]string{"client_ip": address})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 - 3*i {
			if d := e.Decide(t.Context(), &policy.Request{Subject: s}); !d.Allowed {
				t.Fatalf("%s is denied", s.Key())
			}
		}
	}
}
