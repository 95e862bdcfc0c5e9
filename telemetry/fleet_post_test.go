package telemetry

import (
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

func randomSeries(r *rand.Rand, at int64) *series {
	s := newSeries(at - 100_000)
	for at -= int64(r.IntN(100_000)); r.IntN(30) > 0; at += int64(r.IntN(3000)) {
		d := column{}
		d[r.IntN(columns)] = uint64(r.IntN(1 << uint(1+r.IntN(30))))
		s.add(at, &d)
	}
	return s
}

// A post is read back as it was written.
func TestPost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(6, 7))
	const at = 1_800_000_000
	for range 50 {
		all, one := randomSeries(r, at), randomSeries(r, at)
		h := head{
			Instance: Instance{
				Name: "a", Version: "v1", Policy: "abc", Started: time.Unix(at-9999, 5).UTC(), Took: Latency{11, 12, 13},
				InFlight: map[string]uint64{"up": 3},
				Store:    Store{Kind: "redis", Shards: 3, Unavailable: 1, Local: 5, Keys: 6, Evicted: 7, Took: Latency{8, 9, 10}},
			},
			ID: "a@1", At: time.Unix(at, 7).UTC(),
			Events: []Event{{time.Unix(at-5, 0).UTC(), "reload", "text", "a"}},
		}
		upstream := newTimed[upstreamStep](at)
		upstream.recent.add(upstream.recent.last-int64(r.IntN(RecentSteps)), r.IntN(upstreamColumns), uint64(1+r.IntN(1000)))
		post := appendTimed(appendSeries(appendHead(nil, &h), "", all, &h), upstreamPrefix+"up", upstream, &h)
		post = appendSeries(post, "one", one, &h)
		end := max(all.recent.last, one.recent.last) * 10
		wantAll, wantOne := newSeries(end), newSeries(end)
		wantAll.addSeries(all)
		wantOne.addSeries(one)
		gotAll, gotOne := newSeries(end), newSeries(end)
		const ever = 1 << 62
		gotUpstream := newTimed[upstreamStep](at)
		got, err := readPost(post, ever, ever, sums{func(name string) *series {
			return map[string]*series{"": gotAll, "one": gotOne}[name]
		}, func(name string) *upstreamSeries {
			return map[string]*upstreamSeries{"up": gotUpstream}[name]
		}})
		if !reflect.DeepEqual(gotUpstream, upstream) {
			t.Fatal("the counts of the upstream are not read back as they were written")
		}
		if err != nil || !reflect.DeepEqual(got, h) || !reflect.DeepEqual(gotAll, wantAll) || !reflect.DeepEqual(gotOne, wantOne) {
			t.Fatalf("%v, read %+v, want %+v", err, got, h)
		}
	}
}

// A client that can write to the board can neither crash its readers nor fill their memory.
func FuzzPost(f *testing.F) {
	r := rand.New(rand.NewPCG(8, 9))
	h := head{ID: "a", Instance: Instance{Name: "a"}, Events: []Event{{Kind: "k", Text: "t"}}}
	f.Add(appendHead(nil, &h))
	f.Add(appendTimed(appendHead(nil, &h), upstreamPrefix+"up", newTimed[upstreamStep](1_800_000_000), &h))
	f.Add(appendSeries(appendSeries(appendHead(nil, &h), "", randomSeries(r, 1_800_000_000), &h), "b", randomSeries(r, 1_800_000_000), &h))
	f.Fuzz(func(t *testing.T, post []byte) {
		rules := 0
		upstreams := 0
		h, err := readPost(post, 1<<62, 1<<62, sums{func(string) *series {
			rules++
			return newSeries(1_800_000_000)
		}, func(string) *upstreamSeries {
			upstreams++
			return newTimed[upstreamStep](1_800_000_000)
		}})
		if rules+upstreams > MaxRules+MaxUpstreams+4 || len(h.InFlight) > MaxUpstreams+1 || len(h.Events) > maxEvents || err != nil && h.ID != "" {
			t.Errorf("%d rules, %d events, %v", rules, len(h.Events), err)
		}
	})
}

// If the clock steps forward and back, old counts do not return, and counts in the period that is kept are not lost.
func TestClockSteps(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(10, 11))
	for range 100 {
		rec := &Recorder{}
		at := int64(1_800_000_000)
		rec.at, rec.all = at, newSeries(at)
		truth := map[int64]uint64{} // by recent step
		now := at
		for range 60 {
			switch r.IntN(8) {
			case 0:
				now += int64(r.IntN(10_000))
			case 1:
				now -= int64(r.IntN(10_000))
			case 2:
				now -= int64(r.IntN(maxBehind))
			default:
				now += int64(r.IntN(20))
			}
			rec.tick(now)
			effective := now
			if now < at && at-now <= 60 {
				effective = at // the recorder's clock stands still
			}
			for step := range truth {
				if step > effective/10 || step <= effective/10-RecentSteps {
					delete(truth, step)
				}
			}
			at = effective
			d := column{uint64(r.IntN(9))}
			truth[at/10] += d[0]
			rec.all.add(rec.at, &d)
			s := newSeries(rec.at)
			s.addSeries(rec.all)
			for step := s.recent.first(); step <= s.recent.last; step++ {
				if got := uint64(s.recent.cell(step)[0]); got != truth[step] {
					t.Fatalf("step %d has %d, want %d", step, got, truth[step])
				}
			}
		}
	}
}

// Posts of other versions are not read.
func TestOtherVersions(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	s.count("pages", "pages/a", true, noon.UnixMilli())
	counts, who := appendHead(nil, &head{ID: "a@1", Instance: Instance{Name: "a"}}), s.export(noon)
	for _, change := range []byte{0, 1, 255} {
		counts[1], who[0] = postVersion+change, postedVersion+change
		_, err := readPost(counts, 0, 0, skipped)
		if whoErr := make(fleetSubjects).add(who); (err == nil) != (change == 0) || (whoErr == nil) != (change == 0) {
			t.Errorf("versions %d and %d: %v, %v", counts[1], who[0], err, whoErr)
		}
	}
}
