package console

import "github.com/sluicehq/sluice/cmd/internal/control"

// limit is a limit of a subject as pages show it.
type limit struct{ control.LimitState }

// Percent returns how much of the limit is used.
func (l limit) Percent() int64 {
	switch {
	case l.Capacity < 1:
		return 0
	case l.Used >= l.Capacity:
		return 100
	}
	return (l.Used*100 + l.Capacity - 1) / l.Capacity
}

// Fullness returns how the bar is drawn: as empty, part, most or all.
func (l limit) Fullness() string {
	switch p := l.Percent(); {
	case p >= 100:
		return "all"
	case p >= 80:
		return "most"
	case p > 0:
		return "part"
	}
	return "empty"
}

// fullest returns the limit with the largest used fraction.
func fullest(all []control.LimitState) (most limit) {
	for _, l := range all {
		if one := (limit{l}); most.Capacity == 0 || one.Percent() > most.Percent() {
			most = one
		}
	}
	return most
}

// Amount formats a number of the limit's units for people.
func (l limit) Amount(n int64) string {
	if l.USD != nil {
		return l.USD.Text(n)
	}
	if l.Unit != "" {
		return number(n) + " " + l.Unit
	}
	return number(n)
}

// Words returns the limit in words.
func (l limit) Words() string {
	if l.inFlight() {
		return inFlightWords(l.Capacity)
	}
	if l.Algorithm == "distinct" {
		return limitWords(l.Limit, "") + ", different values"
	}
	return limitWords(l.Limit, l.Algorithm)
}

// inFlight reports whether the limit bounds the requests in flight.
func (l limit) inFlight() bool { return l.Algorithm == "in_flight" }
