package sluice

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
)

// Algorithm is the way a [Limit] is counted. The zero value is [TokenBucket].
type Algorithm uint8

const (
	// TokenBucket lets Burst units pass at once and refills at Count per Period.
	TokenBucket Algorithm = iota
	// LeakyBucket is a queue of Burst places that empties at Count per Period: a
	// unit that fits is admitted with the Delay that it has to wait for its turn. A
	// caller that leaves before that gives its turn to a later one: see [Turns].
	LeakyBucket
	// GCRA is the generic cell rate algorithm of ITU-T I.371. It makes the same
	// decisions as TokenBucket from the same state, and exists because people look
	// for it by name.
	GCRA
	// FixedWindow counts in windows aligned to the Unix epoch, or in months of the calendar.
	// At the edge of two windows up to twice Count can pass.
	FixedWindow
	// SlidingWindowCounter weighs the previous window by how much of it still
	// overlaps the last Period.
	SlidingWindowCounter
	// SlidingWindowLog remembers when each unit was taken, in two bytes: never more than
	// Count in any Period. It rounds times to 2^-15 of the Period, always so that a unit
	// counts for a little longer. Above a Count of 1,024 it counts in 32 parts of
	// the Period instead, in some 140 bytes whatever the Count; under
	// constant demand it then lets 32/33 of Count pass, and never more than Count. So steady traffic
	// at the limit loses 3 %, and a client that takes all of Count at once, exactly once a Period,
	// is refused every second time: its units fit again after 33/32 of the Period.
	SlidingWindowLog
	// SlidingWindowLogExact is SlidingWindowLog to the microsecond: a unit counts for
	// exactly one Period, at the price of 16 bytes for each moment in memory and four to
	// seven for each unit in Redis. Count is at most 1,048,576.
	SlidingWindowLogExact
)

var algorithmNames = [...]string{
	TokenBucket:           "token_bucket",
	LeakyBucket:           "leaky_bucket",
	GCRA:                  "gcra",
	FixedWindow:           "fixed_window",
	SlidingWindowCounter:  "sliding_window_counter",
	SlidingWindowLog:      "sliding_window_log",
	SlidingWindowLogExact: "sliding_window_log_exact",
}

// Algorithms returns all of them, in the order of their constants.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(algorithmNames))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// ParseAlgorithm returns the algorithm of that name, for example "token_bucket".
func ParseAlgorithm(name string) (Algorithm, error) {
	for a, n := range algorithmNames {
		if n == name {
			return Algorithm(a), nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %q: use one of %s", name, strings.Join(algorithmNames[:], ", "))
}

// String returns the name that [ParseAlgorithm] reads.
func (a Algorithm) String() string {
	if int(a) < len(algorithmNames) {
		return algorithmNames[a]
	}
	return "algorithm(" + strconv.Itoa(int(a)) + ")"
}

// bursts reports whether the algorithm has a capacity separate from its rate.
func (a Algorithm) bursts() bool { return a <= GCRA }

// Limit is a rate as people write it: Count units per Period.
type Limit struct {
	// Count is the number of units per Period, at least 1.
	Count int64
	// Period is a whole number of microseconds, at least one. For a month of the calendar it is 31
	// days, and may be left at zero.
	Period time.Duration
	// Burst is the most that passes at once: the capacity of a bucket or the places
	// of a queue. Zero stands for the default: Count, or for a [LeakyBucket] what
	// drains in [DefaultQueueTime] if that is less. Windows and logs have none.
	Burst int64
	// Algorithm is the way to count.
	Algorithm Algorithm
	// MonthDay, from 1 to 31, makes the period a month of the calendar in UTC that begins at
	// midnight of this day, or of the last day of a month that is shorter. Only FixedWindow
	// counts by the calendar. Zero is for all other limits.
	MonthDay int
	// Money is the number of micro-USD in a unit of Count and Burst, for a limit in USD. [ParseLimit] returns 1.
	// Larger units serve limits with numbers that would otherwise be too large to be exact. Callers round costs up
	// to whole units. Limits of different Money never share a count. Zero is for limits that do not count money.
	Money int64
}

// DefaultQueueTime is the longest that a [LeakyBucket] without a Burst makes a request wait for its
// turn. A queue always has at least one place.
const DefaultQueueTime = 10 * time.Second

var units = []struct {
	name string
	d    time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour},
	{"sec", time.Second}, {"min", time.Minute}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// ParseLimit reads "100/minute", "5/90s" or "100/minute burst 20". The period is
// second, minute, hour or day, or any length such as 90s, 1h30m, 250ms or 7d. The
// algorithm is left at its zero value.
//
// "50 USD/day" and "0.50 USD/hour burst 2 USD" are in whole micro-USD: see [Limit.Money].
//
// "10000/month" and "10000/month from 15" are by the calendar: see [Limit.MonthDay]. Their
// algorithm is FixedWindow.
func ParseLimit(s string) (Limit, error) {
	l, err := parseLimit(s)
	if err != nil {
		example := "100/minute burst 20"
		switch {
		case strings.ContainsAny(s, "$€£") || strings.Contains(strings.ToUpper(s), "USD"):
			example = "50 USD/day"
		case strings.Contains(s, "month"):
			example = "10000/month from 15"
		}
		return Limit{}, fmt.Errorf("limit %.60q: %w; write it as in %q", s, err, example)
	}
	return l, nil
}

func parseLimit(s string) (Limit, error) {
	count, rest, found := strings.Cut(s, "/")
	if !found {
		return Limit{}, fmt.Errorf("there is no \"/\" between the count and the period")
	}
	n, money, err := parseAmount("count", strings.TrimSpace(count))
	if err != nil {
		return Limit{}, err
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return Limit{}, fmt.Errorf("there is no period behind the \"/\"")
	}
	if words[0] == "month" {
		l, err := parseMonth(n, words[1:])
		l.Money = money
		return l, err
	}
	period, err := ParsePeriod(words[0])
	if err != nil {
		return Limit{}, err
	}
	l := Limit{Count: n, Period: period, Money: money}
	switch {
	case len(words) == 1:
	case len(words) == 3 && words[1] == "burst", len(words) == 4 && words[1] == "burst" && words[3] == "USD":
		if l.Burst, money, err = parseAmount("burst", strings.Join(words[2:], " ")); err != nil {
			return Limit{}, err
		}
		if money != l.Money {
			return Limit{}, fmt.Errorf("either both the limit and its burst are in USD, or neither")
		}
	case words[1] == "from":
		return Limit{}, fmt.Errorf("only a month begins on a day: write \"month\" for the period, or leave %.60q out", strings.Join(words[1:], " "))
	default:
		return Limit{}, fmt.Errorf("%.60q behind the period is not \"burst N\"", strings.Join(words[1:], " "))
	}
	return l, nil
}

// parseMonth reads what follows "month".
func parseMonth(count int64, words []string) (Limit, error) {
	l := Limit{Count: count, Period: longestMonth, Algorithm: FixedWindow, MonthDay: 1}
	switch {
	case len(words) == 0:
		return l, nil
	case words[0] == "burst":
		return Limit{}, fmt.Errorf("a month of the calendar has no burst: leave it out, or write 30d for the length")
	case len(words) != 2 || words[0] != "from":
		return Limit{}, fmt.Errorf("%.60q behind the month is not \"from DAY\"", strings.Join(words, " "))
	}
	day, err := strconv.ParseUint(words[1], 10, 8)
	if err != nil || day < 1 || day > 31 {
		return Limit{}, fmt.Errorf("the day %.40q is not a number from 1 to 31", words[1])
	}
	l.MonthDay = int(day)
	return l, nil
}

// mostMoney is the largest amount in micro-USD: a billion USD.
const mostMoney = 1_000_000_000_000_000

// parseAmount reads a count, or an amount such as "0.50 USD", which is in micro-USD. It also returns the Money of
// a limit of it.
func parseAmount(what, s string) (n, money int64, err error) {
	amount, inUSD := strings.CutSuffix(s, " USD")
	if !inUSD {
		n, err = parseCount(what, s)
		return n, 0, err
	}
	if what == "count" {
		what = "amount"
	}
	switch n, err = printable.ParseDecimal(strings.TrimSpace(amount)); {
	case err != nil:
		return 0, 0, fmt.Errorf("the %s %w", what, err)
	case n < 1 || n > mostMoney:
		return 0, 0, fmt.Errorf("the %s is %s, and must be from %s to %s", what,
			printable.FormatMoney(n), printable.FormatMoney(1), printable.FormatMoney(mostMoney))
	}
	return n, 1, nil
}

func parseCount(what, s string) (int64, error) {
	if strings.Contains(s, ".") {
		return 0, fmt.Errorf("the %s %.40q is not a whole number: take a longer period", what, s)
	}
	if !printable.Digits(s) {
		return 0, fmt.Errorf("the %s %.40q is not a whole number of at least 1", what, s)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("the %s %.40s is too large", what, s)
	}
	if n < 1 {
		return 0, fmt.Errorf("the %s is %d, and must be at least 1", what, n)
	}
	return n, nil
}

// ParsePeriod reads second, minute, hour or day, or a length of time such as 90s, 1h30m, 250ms or 7d. The result is
// positive, and a whole number of microseconds.
func ParsePeriod(s string) (time.Duration, error) {
	for _, u := range units {
		if s == u.name {
			return u.d, nil
		}
	}
	d, err := parseLength(s)
	if err != nil {
		return 0, err
	}
	return d, checkPeriod(d)
}

// parseLength reads what time.ParseDuration does, with days in front of it.
func parseLength(s string) (time.Duration, error) {
	const day = 24 * time.Hour
	var total time.Duration
	rest := s
	if days, after, found := strings.Cut(s, "d"); found && printable.Digits(days) {
		n, err := strconv.ParseInt(days, 10, 64)
		if err != nil || n > int64(math.MaxInt64/day) {
			return 0, fmt.Errorf("the period %.40q is longer than 292 years", s)
		}
		total, rest = time.Duration(n)*day, after
		switch {
		case rest == "":
			return total, nil
		case rest[0] == '+' || rest[0] == '-':
			return 0, fmt.Errorf("the period %.40q has a sign in the middle", s)
		}
	}
	d, err := time.ParseDuration(rest)
	if meant := meantPeriod(s); err != nil && meant != "" {
		return 0, fmt.Errorf("the period %.40q is written %s", s, meant)
	}
	if err != nil {
		return 0, fmt.Errorf("the period %.40q is neither second, minute, hour or day nor a length such as 90s, 1h30m or 7d", s)
	}
	if d > math.MaxInt64-total {
		return 0, fmt.Errorf("the period %.40q is longer than 292 years", s)
	}
	return total + d, nil
}

// meantPeriod returns the right way to write a period that people often write differently, or "".
func meantPeriod(s string) string {
	switch s {
	case "week":
		return "7d"
	case "month": // no length, and not by the calendar here
		return "30d"
	case "months", "mo", "mon", "mth", "monthly":
		return "month"
	case "year":
		return "365d"
	}
	if printable.Digits(s) {
		return s + "s if it is in seconds"
	}
	for _, u := range units {
		if s == u.name+"s" {
			return u.name
		}
	}
	return ""
}

func checkPeriod(d time.Duration) error {
	switch {
	case d <= 0:
		return fmt.Errorf("the period is %v, and must be positive", d)
	case d%time.Microsecond != 0:
		return fmt.Errorf("the period %v is not a whole number of microseconds", d)
	}
	return nil
}

// String returns what [ParseLimit] reads, without the algorithm.
func (l Limit) String() string {
	s := l.Amount(l.Count) + "/" + l.period()
	if l.Burst != 0 {
		s += " burst " + l.Amount(l.Burst)
	}
	return s
}

// Amount returns units of the limit as people write them: digits, or of a limit in USD an amount such as "0.50 USD".
func (l Limit) Amount(units int64) string {
	if l.Money == 0 {
		return strconv.FormatInt(units, 10)
	}
	return printable.FormatMoney(l.Value(units))
}

// Value returns units of the limit as programs read them: for a limit in USD their worth in micro-USD, at most the
// largest int64, and for any other limit the units themselves.
func (l Limit) Value(units int64) int64 {
	if l.Money <= 1 {
		return units
	}
	return l.worth(units)
}

func (l Limit) worth(units int64) int64 {
	hi, lo := bits.Mul64(uint64(max(units, -units)), uint64(l.Money))
	if hi != 0 || lo > math.MaxInt64 {
		lo = math.MaxInt64
	}
	if units < 0 {
		return -int64(lo)
	}
	return int64(lo)
}

func (l Limit) period() string {
	switch l.MonthDay {
	case 0:
		return formatPeriod(l.Period)
	case 1:
		return "month"
	}
	return "month from " + strconv.Itoa(l.MonthDay)
}

func formatPeriod(d time.Duration) string {
	for _, u := range units {
		if d == u.d {
			return u.name
		}
	}
	if d > 0 && d%(24*time.Hour) == 0 {
		return strconv.FormatInt(int64(d/(24*time.Hour)), 10) + "d"
	}
	return d.String()
}

// check reports what makes l meaningless, apart from what the arithmetic can hold.
func (l Limit) check() error {
	if l.Count < 1 {
		return fmt.Errorf("the count is %d, and must be at least 1", l.Count)
	}
	if l.Money < 0 {
		return fmt.Errorf("a unit is %d micro-USD, and must be at least 1, or 0 for what is no money", l.Money)
	}
	if l.MonthDay != 0 {
		return l.checkMonth()
	}
	if err := checkPeriod(l.Period); err != nil {
		return err
	}
	if int(l.Algorithm) >= len(algorithmNames) {
		return fmt.Errorf("%v is not an algorithm", l.Algorithm)
	}
	if l.Burst < 0 {
		return fmt.Errorf("the burst is %d, and must be at least 1", l.Burst)
	}
	if l.Burst > 0 && !l.Algorithm.bursts() {
		return fmt.Errorf("%v has no burst: leave it out, or use token_bucket", l.Algorithm)
	}
	return nil
}

// checkMonth is check for a limit by the calendar.
func (l Limit) checkMonth() error {
	switch {
	case l.MonthDay < 1 || l.MonthDay > 31:
		return fmt.Errorf("the month begins on day %d, and must on one from 1 to 31", l.MonthDay)
	case l.Period != 0 && l.Period != longestMonth:
		return fmt.Errorf("the period of a month of the calendar is %v: leave it at zero", l.Period)
	case l.Algorithm != FixedWindow:
		return fmt.Errorf("%v does not count by the calendar: use fixed_window, or write 30d for the length", l.Algorithm)
	case l.Burst != 0:
		return fmt.Errorf("a month of the calendar has no burst: leave it out")
	}
	return nil
}

// burst returns Burst, or the default if it is zero. l has passed check.
func (l Limit) burst() int64 {
	switch {
	case l.Burst > 0:
		return l.Burst
	case l.Algorithm != LeakyBucket || l.Period <= DefaultQueueTime:
		return l.Count
	}
	hi, lo := bits.Mul64(uint64(l.Count), uint64(DefaultQueueTime))
	places, _ := bits.Div64(hi, lo, uint64(l.Period))
	return max(1, int64(places))
}
