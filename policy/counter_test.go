package policy

import (
	"strings"
	"testing"

	"github.com/sluicehq/sluice/memory"
)

// twice is a counter that a test adds: a rule with a name that ends in "-twice" also charges twice the cost of each
// request under a separate key.
type twice struct {
	noCounter
	limits, at int
	key        []byte
}

func (o *twice) charge(_ *input, _ *charges, _ *subject, first int) { o.limits = first }

func (o *twice) beside(_ *input, c *charges) {
	o.at = len(c.list)
	more := c.list[o.limits]
	o.key = append(append(o.key[:0], "twice!/"...), more.Key...)
	more.Key, more.Cost = string(o.key), 2*more.Cost
	c.list = append(c.list, more)
}

func (o *twice) administer(_ *Subject, c *charges, cost int64) {
	o.charge(nil, nil, nil, 0)
	o.beside(nil, c)
	c.list[o.at].Cost = cost
}

func (o *twice) preview(_ *input, c *charges) { c.wouldFit(o.at) }

func (o *twice) join(c *charges, i int, r *Result) (closed bool) {
	if i == o.limits {
		d := c.list[o.at].Plan.Decide(c.list[o.at].Cost, c.receipts[o.at])
		r.Allowed, r.Remaining = r.Allowed && d.Allowed, min(r.Remaining, d.Remaining)
	}
	return c.closed(o.at)
}

func (o *twice) explain(_ *charges, i int) string {
	if i == o.limits {
		return "counted twice"
	}
	return ""
}

// A new kind of counter needs only a type and an entry of counterKinds. It is charged together with the limits, all or
// none; it can deny; and peeks and explanations include it. This works for single requests, for lists and for requests
// that are decided together. The test is not parallel, because it adds a kind.
func TestNewCounter(t *testing.T) {
	all := counterKinds
	defer func() { counterKinds = all }()
	counterKinds = append(counterKinds[:len(all)-1:len(all)-1], counterKind{
		func(r *rule) bool { return strings.HasSuffix(r.name, "-twice") }, func(*charges) counter { return new(twice) },
	}, all[len(all)-1])

	store := &testStore{Store: memory.New(), record: true}
	e := NewEngine(store, parse(t, `
rules:
  - {name: plain, key: [client_ip], limit: 100/day}
  - {name: a-twice, key: [client_ip], limit: 10/day}`))
	for n := range 5 {
		if d := e.Decide(t.Context(), get("/")); !d.Allowed || d.Results[1].Remaining != int64(8-2*n) {
			t.Fatalf("request %d: %+v", n, d)
		}
	}
	if last := store.charges[len(store.charges)-1]; !strings.HasPrefix(last.Key, "twice!/") || last.Cost != 2 {
		t.Errorf("the last charge is %+v", last)
	}
	before := e.Decide(t.Context(), get("/"))
	if before.Allowed || before.Results[0].Remaining != 95 || before.Results[1].Allowed {
		t.Errorf("the sixth request: %+v", before)
	}
	s := subjectOf(t, e, "a-twice", map[string]string{"client_ip": "192.0.2.1"})
	if now, err := s.Peek(t.Context()); err != nil || now[0].Remaining != 0 {
		t.Errorf("the subject: %+v, %v", now, err)
	}
	each := make([]Decision, 2)
	e.DecideEach(t.Context(), []*Request{get("/"), get("/")}, each)
	together := make([]Decision, 1)
	if e.DecideTogether(t.Context(), []*Request{get("/")}, together); each[1].Allowed || together[0].Allowed {
		t.Errorf("in a list: %+v, together: %+v", each[1], together[0])
	}
	if x := e.Explain(t.Context(), get("/")); x.Decision.Allowed || x.Rules[1].Share != "counted twice" || x.Rules[0].Share != "" {
		t.Errorf("the explanation: %+v", x)
	}
	if err := s.Reset(t.Context()); err != nil || !e.Decide(t.Context(), get("/")).Allowed {
		t.Errorf("after a reset: %v", err)
	}
}
