package recommend

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/internal/seed"
)

// asked is a request to a model, with the tokens of its response.
type asked struct {
	at            time.Duration // since the beginning of the log
	client        int
	input, output int64
	fails         bool // a failed request reports no tokens
}

// conversations returns random requests of some clients, in order.
func conversations(rng *rand.Rand, clients int) (all []asked) {
	for at := time.Duration(0); at < 2*time.Hour; at += time.Duration(rng.IntN(2000)) * time.Millisecond {
		r := asked{at: at, client: rng.IntN(clients), input: 10 + rng.Int64N(3000), output: rng.Int64N(4000), fails: rng.IntN(20) == 0}
		if r.client < 5 { // these clients get much more output
			r.output *= 10
		}
		all = append(all, r)
	}
	return all
}

// leastBurst returns the least burst of a bucket that denies no request. A request needs room for its cost, and at
// least for the tokens that are reserved for its output; then only its cost counts.
func leastBurst(all []asked, l sluice.Limit, reserved int64, cost func(*asked) int64) (burst int64) {
	type state struct{ level, at int64 } // level in fractions of a token; a microsecond drains Count of them
	states := map[int]state{}
	part := l.Period.Microseconds()
	for i := range all {
		r := &all[i]
		if r.fails {
			continue
		}
		s := states[r.client]
		level := max(0, s.level-(r.at.Microseconds()-s.at)*l.Count)
		burst = max(burst, (level+max(reserved, cost(r))*part+part-1)/part)
		states[r.client] = state{level + cost(r)*part, r.at.Microseconds()}
	}
	return burst
}

// Limits in tokens deny none of the requests that they were made from, and are not larger than necessary.
func TestTokens(t *testing.T) {
	t.Parallel()
	all := conversations(rand.New(rand.NewPCG(seed.Of(t), 1)), 400)
	log := &strings.Builder{}
	for i := range all {
		r := &all[i]
		at := time.Date(2026, 11, 20, 10, 0, 0, 1000, time.UTC).Add(r.at).Format(time.RFC3339Nano)
		fmt.Fprintf(log, `{"time":%q,"client_ip":"10.0.%d.%d","method":"POST","path":"/v1/chat/completions",`, at, r.client/256, r.client%256)
		if r.fails {
			fmt.Fprintf(log, "\"status\":500}\n")
		} else {
			fmt.Fprintf(log, "\"status\":200,\"llm\":{\"in\":%d,\"cached\":%d,\"out\":%d}}\n", r.input, r.input/2, r.output)
		}
	}
	for _, kind := range []struct {
		name     string
		reserved int64
		cost     func(*asked) int64
	}{
		{"total", 2000, func(r *asked) int64 { return r.input + r.output }},
		{"uncached", 2000, func(r *asked) int64 { return r.input - r.input/2 + r.output }},
		{"input", 1, func(r *asked) int64 { return r.input }},
		{"output", 2000, func(r *asked) int64 { return r.output }},
	} {
		c := config(t, "0.1%", nil)
		c.Tokens, c.Files = kind.name, []string{logtest.Write(t, log.String())}
		format, err := accesslog.Lookup("json", accesslog.Options{Fields: map[string]string{
			"input_tokens": "llm.in", "output_tokens": "llm.out", "cached_tokens": "llm.cached",
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.Feed.Format = format
		r := run(t, c)
		if len(r.Document.Rules) == 0 || r.Document.Rules[0].Cost.Tokens != kind.name || !r.Replay.Kept || r.Replay.Refused > 0 {
			t.Fatalf("%s: %+v, %+v", kind.name, r.Document.Rules, r.Replay)
		}
		limit, err := sluice.ParseLimit(r.Rules[0].Limit)
		if err != nil {
			t.Fatal(err)
		}
		if want := leastBurst(all, limit, kind.reserved, kind.cost); r.Rules[0].Exact != want {
			t.Errorf("%s: the burst of %v is %d, want %d", kind.name, limit, r.Rules[0].Exact, want)
		}
	}
}
