package incident

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// sent describes a request that the script sends.
type sent struct {
	who      string // the group that sent it
	address  string
	customer string // the API key; empty without one
	tier     string
	name     string // the login as sent
}

// entry is a request in the Books, with its decision.
type entry struct {
	sent
	at        time.Duration
	allowed   bool
	refusedBy []string // rules
	blockedBy string
	seenBy    []string // rules that counted it
}

// Books has every request of the script with its decision. Its counts are exact, because it keeps all entries.
type Books struct {
	began time.Time
	all   []entry
}

func (b *Books) enter(at time.Duration, what sent, d *policy.Decision) {
	e := entry{sent: what, at: at, allowed: d.Allowed, blockedBy: d.Blocked}
	for i := range d.Results {
		result := &d.Results[i]
		e.seenBy = append(e.seenBy, result.Rule)
		if !result.Allowed {
			e.refusedBy = append(e.refusedBy, result.Rule)
		}
	}
	b.all = append(b.all, e)
}

// Tally has the counts of some requests.
type Tally struct{ Asked, Refused, Blocked uint64 }

// Share returns the fraction of requests that were denied.
func (t Tally) Share() float64 { return float64(t.Refused) / float64(max(t.Asked, 1)) }

// between calls f for each entry in the period [from, to).
func (b *Books) between(from, to time.Duration, f func(*entry)) {
	first, _ := slices.BinarySearchFunc(b.all, from, func(e entry, at time.Duration) int { return cmp.Compare(e.at, at) })
	for i := first; i < len(b.all) && b.all[i].at < to; i++ {
		f(&b.all[i])
	}
}

// Requests counts all requests between two times of the hour.
func (b *Books) Requests(from, to time.Duration) (t Tally) {
	b.between(from, to, func(e *entry) { t.count(!e.allowed, e.blockedBy != "") })
	return t
}

func (t *Tally) count(refused, blocked bool) {
	t.Asked++
	if refused {
		t.Refused++
	}
	if blocked {
		t.Blocked++
	}
}

// Rule counts the decisions of one rule.
func (b *Books) Rule(rule string, from, to time.Duration) (t Tally) {
	b.between(from, to, func(e *entry) {
		if slices.Contains(e.seenBy, rule) {
			t.count(slices.Contains(e.refusedBy, rule), e.blockedBy == rule)
		}
	})
	return t
}

// Subjects counts the decisions of one rule by subject: an address, an API key, or a login as sent.
func (b *Books) Subjects(rule string, from, to time.Duration) map[string]Tally {
	all := map[string]Tally{}
	b.between(from, to, func(e *entry) {
		if !slices.Contains(e.seenBy, rule) {
			return
		}
		subject := e.address
		switch rule {
		case "login":
			subject = e.name
		case "api", "export":
			subject = e.customer
		case "reports":
			subject = "reports"
		}
		t := all[subject]
		t.count(slices.Contains(e.refusedBy, rule), e.blockedBy == rule)
		all[subject] = t
	})
	return all
}

// Customers counts the requests of a tier by API key.
func (b *Books) Customers(tier string, from, to time.Duration) map[string]Tally {
	all := map[string]Tally{}
	b.between(from, to, func(e *entry) {
		if e.customer != "" && e.tier == tier {
			t := all[e.customer]
			t.count(!e.allowed, e.blockedBy != "")
			all[e.customer] = t
		}
	})
	return all
}
