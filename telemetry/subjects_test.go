package telemetry

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// noon is the start of an hour.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// exact has the exact counts by key.
type exact map[string]uint64

func (e exact) total() (n uint64) {
	for _, v := range e {
		n += v
	}
	return n
}

func (e exact) largest(n int) []string {
	keys := slices.SortedFunc(maps.Keys(e), func(a, b string) int { return cmp.Or(cmp.Compare(e[b], e[a]), cmp.Compare(a, b)) })
	return keys[:min(n, len(keys))]
}

// count counts one request of a subject.
func (s *subjects) count(rule, key string, refused bool, at int64) {
	s.add(rule, key, "", &note{at: at, refused: refused})
}

// joined returns the report on a rule by all instances together.
func joined(t *testing.T, rule string, at time.Time, instances ...*subjects) *Rule {
	t.Helper()
	f := fleetSubjects{}
	for _, s := range instances {
		post := s.export(at)
		if len(post) > mostPosted+32<<10 {
			t.Fatalf("the post has %d bytes", len(post))
		}
		if err := f.add(post); err != nil {
			t.Fatal(err)
		}
	}
	r := &Rule{Name: rule}
	f.fill(r, new(policy.Policy), at)
	return r
}

// check compares a list with the true counts.
func check(t *testing.T, top Top, truth exact) {
	t.Helper()
	if total := truth.total(); top.Total != total {
		t.Errorf("Total is %d, want %d", top.Total, total)
	}
	seen := map[string]bool{}
	before := uint64(math.MaxUint64)
	for _, s := range top.Items {
		n := truth[s.Key]
		if n > s.Count || n < s.Count-s.Error || s.Error > top.Error || s.Error > s.Count {
			t.Errorf("%s has %d, reported as %d-%d, in a list with an error of %d", s.Key, n, s.Count, s.Error, top.Error)
		}
		if seen[s.Key] || s.Count > before {
			t.Errorf("%s is listed twice, or after a smaller count", s.Key)
		}
		seen[s.Key], before = true, s.Count
	}
	for key, n := range truth {
		if !seen[key] && n > top.Error {
			t.Errorf("%s is missing with %d, more than the reported error of %d", key, n, top.Error)
		}
	}
}

// near reports whether an estimate is within 4 standard errors.
func near(estimate uint64, truth int) bool {
	return math.Abs(float64(estimate)-float64(truth)) <= 4*1.04/math.Sqrt(1<<precision)*float64(truth)
}

// verify has two instances count keys over some minutes, with a third of them denied. It compares the report of both
// with the true counts, and returns the report.
func verify(t *testing.T, keys []string) *Rule {
	t.Helper()
	const over = 4 * time.Minute
	refused, asked, random := exact{}, exact{}, rand.New(rand.NewPCG(seed.Of(t), 0))
	instances := []*subjects{newSubjects(), newSubjects()}
	for i, key := range keys {
		at := noon.Add(over * time.Duration(i) / time.Duration(len(keys)))
		instances[random.IntN(2)].count("pages", key, i%3 == 0, at.UnixMilli())
		asked[key]++
		if i%3 == 0 {
			refused[key]++
		}
	}
	r := joined(t, "pages", noon.Add(over), instances...)
	for _, w := range []Window{Hour, Day} {
		t.Run(w.String(), func(t *testing.T) {
			check(t, r.Traffic[w], asked)
			check(t, r.Refusals[w], refused)
			if !near(r.Asked[w], len(asked)) || !near(r.Refused[w], len(refused)) {
				t.Errorf("%d subjects and %d denied ones are reported as %d and %d", len(asked), len(refused), r.Asked[w], r.Refused[w])
			}
			for i, key := range asked.largest(10) {
				at := slices.IndexFunc(r.Traffic[w].Items, func(s Subject) bool { return s.Key == key })
				if at < 0 {
					t.Errorf("%s is missing, with rank %d", key, i+1)
				}
			}
		})
	}
	return r
}

// Ten subjects are found among 50,000 that come once.
func TestSubjectsFlood(t *testing.T) {
	t.Parallel()
	const heavy = 1000
	var keys []string
	for i := range 50_000 {
		keys = append(keys, fmt.Sprintf("pages/%016x", i))
	}
	for i := range 10 {
		for range heavy + 25*i {
			keys = append(keys, fmt.Sprintf("pages/heavy-%d", i))
		}
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	r := verify(t, keys)
	if n := len(r.Traffic[Hour].Items); n != mostItems {
		t.Errorf("%d subjects are listed", n)
	}
	for i, s := range r.Traffic[Hour].Items[:10] {
		if !strings.HasPrefix(s.Key, "pages/heavy-") {
			t.Errorf("%s has rank %d", s.Key, i+1)
		}
	}
	if floor := r.Traffic[Hour].Items[0].Error; floor > uint64(len(keys))/(mostEntries+1) {
		t.Errorf("the error of the first is %d, more than documented", floor)
	}
}

// Summaries of any sizes are merged in any order, from their encoded form: all bounds are true, and errors are no
// larger than documented.
func TestSummaryMerges(t *testing.T) {
	t.Parallel()
	for trial := range uint64(300) {
		r := rand.New(rand.NewPCG(trial, 0))
		k := 1 + r.IntN(20)
		truth := exact{}
		parts := make([]*summary, 1+r.IntN(6))
		for i := range parts {
			parts[i] = &summary{k: k}
			keys := 1 + r.IntN(100)
			for range r.IntN(500) {
				key := fmt.Sprint(min(r.IntN(keys), r.IntN(keys)))
				truth[key]++
				parts[i].add(key, "", &entry{low: 1, over: 1})
				parts[i].total++
			}
		}
		for len(parts) > 1 {
			i := r.IntN(len(parts) - 1)
			parts[i+1].k += r.IntN(2 * k)
			d := &decoder{rest: parts[i+1].encode(nil, noon.UnixMilli(), 1<<20)}
			if parts[i].merge(d); d.failed || len(d.rest) > 0 {
				t.Fatal("an encoded summary cannot be decoded")
			}
			parts = slices.Delete(parts, i+1, i+2)
		}
		s := parts[0]
		over := uint64(0)
		for i := range s.entries {
			e := &s.entries[i]
			over += e.over
			if n := truth[e.key]; n < e.low || n > e.over+s.floor {
				t.Fatalf("trial %d: %s has %d, reported as %d to %d", trial, e.key, n, e.low, e.over+s.floor)
			}
		}
		for key, n := range truth {
			if n > s.floor && s.get(key) == nil {
				t.Fatalf("trial %d: %s is missing with %d, more than the error of %d", trial, key, n, s.floor)
			}
		}
		if total := truth.total(); s.total != total || s.floor*uint64(k+1)+over > total {
			t.Fatalf("trial %d: with %d entries and a total of %d, reported as %d, the error is %d, and the counts above it are %d", trial, k, total, s.total, s.floor, over)
		}
		if got := s.subjects(); s.floor == 0 && got != uint64(len(truth)) || math.Abs(float64(got)-float64(len(truth))) > 3+0.1*float64(len(truth)) {
			t.Fatalf("trial %d: %d subjects are reported as %d", trial, len(truth), got)
		}
	}
}

// A window has the counts since its beginning, and no older ones.
func TestSubjectsWindows(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	add := func(key string, n int, ago time.Duration) {
		for range n {
			s.count("pages", "pages/"+key, true, noon.Add(-ago).UnixMilli())
		}
	}
	add("long ago", 5, 25*time.Hour)
	add("yesterday", 40, 22*time.Hour)
	add("always", 7, 22*time.Hour)
	add("hour", 30, 50*time.Minute)
	add("always", 7, 50*time.Minute)
	add("always", 7, 49*time.Minute)
	add("minute", 20, 45*time.Second)
	add("always", 7, 45*time.Second)
	add("always", 7, 0)
	add("now", 10, 0)
	render := func(at time.Time) [Windows]string {
		r := joined(t, "pages", at, s)
		var post [Windows]string
		for w, top := range r.Refusals {
			if r.Refused[w] != uint64(len(top.Items)) || r.Asked[w] != r.Refused[w] || top.Error != 0 || fmt.Sprint(top) != fmt.Sprint(r.Traffic[w]) {
				t.Errorf("%s: %d subjects were denied of %d; %v and %v", Window(w), r.Refused[w], r.Asked[w], top, r.Traffic[w])
			}
			for _, i := range top.Items {
				post[w] += fmt.Sprintf("%s %d-%d %d ", strings.TrimPrefix(i.Key, "pages/"), i.Count, i.Error, i.Minutes)
			}
		}
		return post
	}
	for _, c := range []struct {
		after time.Duration
		want  [Windows]string
	}{
		{0, [Windows]string{"minute 20-0 1 always 14-0 4 now 10-0 1 ", "hour 30-0 1 always 28-0 4 minute 20-0 1 now 10-0 1 ", "yesterday 40-0 0 always 35-0 4 hour 30-0 1 minute 20-0 1 now 10-0 1 "}},
		{30 * time.Second, [Windows]string{"now 10-0 1 always 7-0 4 ", "hour 30-0 1 always 28-0 4 minute 20-0 1 now 10-0 1 ", "yesterday 40-0 0 always 35-0 4 hour 30-0 1 minute 20-0 1 now 10-0 1 "}},
		{time.Minute, [Windows]string{"", "hour 30-0 1 always 28-0 4 minute 20-0 1 now 10-0 1 ", "yesterday 40-0 0 always 35-0 4 hour 30-0 1 minute 20-0 1 now 10-0 1 "}},
		{30 * time.Minute, [Windows]string{"", "minute 20-0 1 always 14-0 2 now 10-0 1 ", "yesterday 40-0 0 always 35-0 2 hour 30-0 0 minute 20-0 1 now 10-0 1 "}},
		{5 * time.Hour, [Windows]string{"", "", "hour 30-0 0 always 28-0 0 minute 20-0 0 now 10-0 0 "}},
	} {
		if got := render(noon.Add(c.after)); got != c.want {
			t.Errorf("%v later: %q, want %q", c.after, got, c.want)
		}
	}
	if post := s.export(noon.Add(25 * time.Hour)); post != nil || len(s.rules) != 0 {
		t.Errorf("a day later, the post has %d bytes, for %d rules", len(post), len(s.rules))
	}
}

// Whatever subjects come, they take no more memory than documented, and all bounds are true.
func TestSubjectsMemory(t *testing.T) { testSubjectsMemory(t, mostRules+10, 3, 40) }

// testSubjectsMemory counts requests of the given number of rules, in the given number of steps of ten seconds. In each
// step, a rule has one subject with nine requests, and up to once subjects with one.
func testSubjectsMemory(t *testing.T, rules, steps, once int) {
	const most = 60 << 20
	names := make([]string, rules)
	for i := range names {
		names[i] = fmt.Sprintf("rule-%d", i)
	}
	r := rand.New(rand.NewPCG(5, 6))
	before := testkit.Heap()
	s := newSubjects()
	truth := map[string]exact{names[0]: {}, names[30]: {}, names[min(rules, mostRules)-1]: {}}
	for step := range steps {
		at := noon.Add(time.Duration(10*step) * time.Second)
		for i, name := range names[:min(rules, 8*fullRules*(1+step))] { // more rules in each step
			for range once * min(1, fullRules*8/(i+1)) {
				key := fmt.Sprintf("%s/%x%s", name, r.Uint64(), strings.Repeat("x", r.IntN(60)))
				s.count(name, key, true, at.UnixMilli())
				if truth[name] != nil {
					truth[name][key]++
				}
			}
			for range 9 {
				s.count(name, name+"/often", true, at.UnixMilli())
			}
			if truth[name] != nil {
				truth[name][name+"/often"] += 9
			}
		}
		s.export(at)
	}
	at := noon.Add(time.Duration(10*steps) * time.Second)
	grown := testkit.Heap() - before
	t.Logf("the heap has grown by %d KiB", grown>>10)
	if grown > most {
		t.Errorf("the heap has grown by %d MiB", grown>>20)
	}
	for name, want := range truth {
		views := joined(t, name, at, s)
		for _, top := range []Top{views.Traffic[Hour], views.Refusals[Day]} {
			check(t, top, want)
		}
		if top := views.Refusals[Hour]; name == names[0] && (len(top.Items) == 0 || top.Items[0].Key != name+"/often") {
			t.Errorf("the list of %s is %v", name, top.Items)
		}
	}
	if len(s.rules) > mostRules {
		t.Errorf("%d rules are kept", len(s.rules))
	}
	runtime.KeepAlive(s)
}

// With many rules, each rule keeps fewer subjects. When the other rules are forgotten, it keeps as many as before.
func TestSubjectsRecover(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	at := noon
	flood := func(rule string, n int) {
		for i := range n {
			s.count(rule, fmt.Sprintf("%s/%d", rule, i), true, at.UnixMilli())
		}
	}
	tick := func() {
		flood("crowded", 200)
		at = at.Add(10 * time.Second)
		s.export(at)
	}
	for range 10 {
		for i := range 4 * fullRules {
			flood(fmt.Sprint(i), 1)
		}
		tick()
	}
	if top := joined(t, "crowded", at, s).Refusals[Hour]; len(top.Items) == mostItems || top.Error == 0 || top.Total != 2000 {
		t.Errorf("with many rules, %d subjects are listed, with an error of %d and a total of %d", len(top.Items), top.Error, top.Total)
	}
	at = at.Add(25 * time.Hour)
	s.export(at)
	for range 10 {
		tick()
	}
	top := joined(t, "crowded", at, s).Refusals[Hour]
	if len(top.Items) != mostItems || top.Items[0].Error != 0 || top.Total != 2000 {
		t.Errorf("a day later, %d subjects are listed, with an error of %d and a total of %d", len(top.Items), top.Error, top.Total)
	}
}

// If the key of a subject is too long for a summary, the requests of the subject are part of the error.
func TestSubjectsLost(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	long := "pages/" + strings.Repeat("x", maxKey)
	for range 5 {
		s.count("pages", long, true, noon.UnixMilli())
	}
	s.count("pages", "pages/a", true, noon.UnixMilli())
	check(t, joined(t, "pages", noon, s).Refusals[Minute], exact{long: 5, "pages/a": 1})
}

// A clock that is set forward and back loses no count that is still in the window.
func TestSubjectsClock(t *testing.T) {
	t.Parallel()
	s := newSubjects()
	for _, step := range []time.Duration{0, time.Second, -30 * time.Second, 10 * time.Second, 40 * time.Minute, -39 * time.Minute, 20 * time.Second} {
		s.count("pages", "pages/a", true, noon.Add(step).UnixMilli())
		s.export(noon.Add(step))
	}
	check(t, joined(t, "pages", noon.Add(20*time.Second), s).Refusals[Day], exact{"pages/a": 7})
	s.count("pages", "pages/a", true, noon.AddDate(10, 0, 0).UnixMilli())
	s.export(noon.AddDate(10, 0, 0))
	for range 3 {
		s.count("pages", "pages/b", true, noon.UnixMilli())
	}
	check(t, joined(t, "pages", noon, s).Refusals[Minute], exact{"pages/b": 3})
}

// A post of arbitrary bytes does not crash its reader, and errors do not exceed counts.
func FuzzSubjectsAdd(f *testing.F) {
	s := newSubjects()
	f.Add([]byte{postedVersion})
	for i := range 2000 {
		s.count("pages", fmt.Sprintf("pages/%d", i%700), i%3 == 0, noon.UnixMilli())
		if i == 10 || i == 1999 {
			f.Add(s.export(noon))
		}
	}
	f.Fuzz(func(t *testing.T, post []byte) {
		all := fleetSubjects{}
		for range 2 {
			if all.add(post) != nil {
				return
			}
		}
		for name := range all {
			r := &Rule{Name: name}
			all.fill(r, new(policy.Policy), noon)
			for w := range r.Traffic {
				for _, s := range append(r.Traffic[w].Items, r.Refusals[w].Items...) {
					if s.Error > s.Count {
						t.Fatalf("a count of %d with an error of %d", s.Count, s.Error)
					}
				}
			}
		}
	})
}

// A subject's counts in each five minutes of the last hour are those of all instances, without older ones, whenever the
// instances have posted.
func TestSteps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	r := rand.New(rand.NewPCG(13, 5))
	instances := []*subjects{newSubjects(), newSubjects()}
	truth := map[string]map[int64]uint64{}
	telling := 0
	for at := begin; at.Before(begin.Add(2 * time.Hour)); at = at.Add(7 * time.Second) {
		for range r.IntN(20) {
			key := fmt.Sprintf("pages/%d", min(r.IntN(12), r.IntN(12)))
			instances[r.IntN(2)].count("pages", key, true, at.UnixMilli())
			if truth[key] == nil {
				truth[key] = map[int64]uint64{}
			}
			truth[key][at.Unix()/300]++
		}
		if r.IntN(40) > 0 {
			continue
		}
		f := fleetSubjects{}
		for _, s := range instances {
			if err := f.add(s.export(at)); err != nil {
				t.Fatal(err)
			}
		}
		later := at.Add(time.Duration(r.IntN(20)) * time.Second) // when a view is made of the posts
		rule := &Rule{Name: "pages"}
		f.fill(rule, new(policy.Policy), later)
		for _, item := range rule.Refusals[Hour].Items {
			for i, got := range item.Steps {
				want := truth[item.Key][later.Unix()/300-int64(SubjectSteps-1-i)]
				if got != want {
					t.Fatalf("%v, posted at %v: %s has %d in step %d, want %d: %v", later, at, item.Key, got, i, want, item.Steps)
				}
				if want > 0 {
					telling++
				}
			}
		}
	}
	if telling < 1000 {
		t.Errorf("premise: only %d steps have counts", telling)
	}
}
