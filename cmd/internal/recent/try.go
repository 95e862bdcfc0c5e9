package recent

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/policy"
)

const (
	// MostAge is the maximum age of requests in a trial.
	MostAge = time.Hour
	// maxTime bounds the duration of a replay. A longer replay ends early.
	maxTime = 10 * time.Second
	// storeBytes bounds the memory for the counters of one side during a trial.
	storeBytes = 32 << 20
)

// Try returns the effect that a change from one policy to another would have had in the last hour. Only one trial
// runs at a time; further trials wait.
func (r *Ring) Try(ctx context.Context, before, after *policy.Document) (*Trial, error) {
	select {
	case r.trying <- struct{}{}:
		defer func() { <-r.trying }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	chunks := r.chunks()
	t := &trial{ring: r, chunks: chunks, since: time.Now().Add(-MostAge).UnixMicro()}
	out := &Trial{Rules: []RuleTrial{}, Subjects: []SubjectTrial{}, NotJudged: []replay.NotJudged{}, Notes: []string{}, Instances: 1}
	if len(chunks) == 0 {
		return out, nil
	}
	t.begin(before, after)
	t.fresh = r.fresh && len(t.chunks) == len(chunks) && t.oldest() >= t.since && r.complete()
	return out, t.run(ctx, out)
}

// trial is a trial in progress.
type trial struct {
	ring   *Ring
	chunks []chunk
	since  int64 // the time from which requests are tried, in microseconds since the Unix epoch
	judges [2]judge
	left   map[string]replay.NotJudged // the rules that are omitted from both policies, by name
	fresh  bool                        // the counters of the instance were empty before the first record
}

// begin finds the rules that can be tried with the schema of the newest chunk.
func (t *trial) begin(before, after *policy.Document) {
	newest := slices.MaxFunc(t.chunks, func(a, b chunk) int { return cmp.Compare(a.first, b.first) })
	t.left = map[string]replay.NotJudged{}
	moved := !slices.Equal(before.TrustedProxies, after.TrustedProxies) || before.IPv6Prefix != after.IPv6Prefix
	for i, doc := range []*policy.Document{before, after} {
		j := &t.judges[i]
		*j = judge{t.ring.seed, newest.schema, *doc, moved}
		for _, l := range j.left() {
			t.left[l.Rule] = l
		}
	}
	t.drop()
}

// drop removes the chunks with records that cannot be tried (see [trial.reads]), and all older chunks.
func (t *trial) drop() {
	newest := t.judges[0].schema
	for _, c := range t.chunks {
		if c.schema != newest && !t.reads(c.schema) {
			t.since = max(t.since, c.last+1)
		}
	}
	t.chunks = slices.DeleteFunc(t.chunks, func(c chunk) bool { return c.last < t.since })
}

// reads reports whether records with a schema have all inputs of the remaining rules in the form of the newest
// schema.
func (t *trial) reads(s *schema) bool {
	newest := t.judges[0].schema
	if s.client != newest.client {
		return false
	}
	for i := range t.judges {
		j := t.judges[i]
		j.schema = s
		for k := range j.doc.Rules {
			r := &j.doc.Rules[k]
			if _, left := t.left[r.Name]; left {
				continue
			}
			if need, _ := j.lacks(r); need != "" {
				return false
			}
			for _, part := range partsOf(&j.doc, r) {
				if id := policy.PartID(part); isRecorded(id) && s.parts[s.find(id)].show != newest.parts[newest.find(id)].show {
					return false
				}
			}
		}
	}
	return true
}

// run tries both policies. If the first pass finds rules whose inputs are missing, it tries again without these
// rules.
func (t *trial) run(ctx context.Context, out *Trial) error {
	p, err := t.pass(ctx)
	if err == nil && t.leave(p) {
		p, err = t.pass(ctx)
	}
	if err != nil {
		return err
	}
	t.leave(p)
	p.report(out)
	for _, name := range slices.Sorted(maps.Keys(t.left)) {
		out.NotJudged = append(out.NotJudged, t.left[name])
	}
	return nil
}

// leave omits the rules whose inputs the records lack, and reports whether it found any.
func (t *trial) leave(p *pass) (some bool) {
	for i := range p.sides {
		for name, part := range p.sides[i].missed {
			if _, left := t.left[name]; !left {
				some = true
				why := "Some requests of this rule were recorded without " + part + ", because no rule in force read it then."
				if part == unknownOutcome {
					why = "Outcomes were reported through /v1/settle, and the records do not contain to which requests they belong."
				}
				t.left[name] = replay.NotJudged{Rule: name, Needs: part, Why: why}
			}
		}
	}
	return some
}
