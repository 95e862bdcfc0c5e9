package checkgrpc

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/internal/policytest"
)

// If a caller reports the outcome of a response, the request costs as much as the outcome requires.
func TestSettle(t *testing.T) {
	t.Parallel()
	client := serve(t, door.Config{Engine: policytest.Engine(t, `
version: 1
rules:
  - {name: tokens, match: /v1/, key: [api_key], limit: 1000/day, cost: {tokens: total, estimate: {output: 100}}, count: {status: [2xx]}}
  - {name: closed, match: /closed, block: true}
  - {name: plain, match: /plain, limit: 9/day}
`)})
	usage := map[string]int64{"usage.prompt_tokens": 20, "usage.completion_tokens": 7}
	ask := func(path, key, body string) *CheckRequest {
		one := about("POST", path, "X-Api-Key", key)
		one.GetRequest().Body = []byte(body)
		return one
	}
	for _, c := range []struct {
		name    string
		outcome *Outcome
		used    int64 // after a charge of 110
		settled bool
	}{
		{"numbers", &Outcome{Status: 200, Numbers: usage}, 27, true},
		{"an unknown number", &Outcome{Status: 200, Numbers: map[string]int64{"usage.tokens": 3}}, 110, true},
		{"cost", &Outcome{Status: 200, Cost: proto.Int64(40)}, 40, true},
		{"no cost", &Outcome{Status: 200, Cost: proto.Int64(0)}, 0, true},
		{"a status that does not count", &Outcome{Status: 429, Numbers: usage}, 0, true},
		{"a verdict that it counts", &Outcome{Status: 429, Numbers: usage, Counts: proto.Bool(true)}, 27, true},
		{"a verdict that it does not", &Outcome{Status: 200, Numbers: usage, Counts: proto.Bool(false)}, 0, true},
		{"not known yet", &Outcome{Status: 200}, 110, false},
	} {
		one := ask("/v1/chat", c.name, `{"model":"m","messages":"0123"}`[:30])
		if out, err := client.Check(t.Context(), one); err != nil || !out.Allowed || out.Results[0].Remaining != 890 {
			t.Fatalf("%s: %v, %v", c.name, out, err)
		}
		got, err := client.Settle(t.Context(), &SettleRequest{Check: one, Outcome: c.outcome})
		if err != nil || got.Settled != c.settled {
			t.Errorf("%s: settled %v, %v", c.name, got.GetSettled(), err)
		}
		peek := proto.CloneOf(one)
		peek.Mode = Mode_MODE_PEEK
		if out, err := client.Check(t.Context(), peek); err != nil || 1000-out.Results[0].Remaining != c.used {
			t.Errorf("%s: %v, %v, want %d used", c.name, out, err, c.used)
		}
	}
	held := ask("/v1/chat", "k", "")
	held.Place = true
	for name, in := range map[string]*SettleRequest{
		"no check":       {Outcome: &Outcome{Status: 200}},
		"no outcome":     {Check: ask("/v1/chat", "k", "")},
		"blocked":        {Check: ask("/closed", "k", ""), Outcome: &Outcome{Status: 200, Numbers: usage}},
		"a bad path":     {Check: ask("chat", "k", ""), Outcome: &Outcome{Status: 200}},
		"with a place":   {Check: held, Outcome: &Outcome{Status: 200}},
		"a bad status":   {Check: ask("/v1/chat", "k", ""), Outcome: &Outcome{Status: 20}},
		"a bad number":   {Check: ask("/v1/chat", "k", ""), Outcome: &Outcome{Numbers: map[string]int64{"usage.prompt_tokens": -1}}},
		"a bad time":     {Check: ask("/v1/chat", "k", ""), Outcome: &Outcome{Numbers: usage}, At: &timestamppb.Timestamp{Seconds: 1 << 60}},
		"too large cost": {Check: ask("/v1/chat", "k", ""), Outcome: &Outcome{Cost: proto.Int64(door.MaxUnits + 1)}},
	} {
		if _, err := client.Settle(t.Context(), in); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := client.Settle(t.Context(), &SettleRequest{Check: ask("/plain", "k", ""), Outcome: &Outcome{Status: 200}}); err != nil || got.Settled {
		t.Errorf("a rule that does not depend on outcomes: %v, %v", got, err)
	}
}
