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

// Algorithm is the way in which a [Limit] counts. The zero value is [TokenBucket].
type Algorithm uint8

const (
	// TokenBucket lets Burst units pass at once and refills at Count per Period.
	TokenBucket Algorithm = iota
	// LeakyBucket is a queue of Burst units that drains at Count per Period: a unit that fits is admitted, and Delay in
	// its [Decision] is the time until its turn. If a caller leaves before its turn, a later caller gets the turn: see
	// [Turns].
	LeakyBucket
	// GCRA is the generic cell rate algorithm of ITU-T I.371. It is the same algorithm as TokenBucket under another
	// name.
	GCRA
	// FixedWindow counts in windows aligned to the Unix epoch, or in months of the calendar. Up to twice Count can
	// pass around the end of a window.
	FixedWindow
	// SlidingWindowCounter adds a fraction of the previous window's count to the count of the current window. The
	// fraction is the part of the previous window that lies within the last Period. This assumes that the previous
	// window was used evenly. About Count units pass in a Period, or nearly twice as many if a burst at the end of one
	// window is followed by another at the end of the next.
	SlidingWindowCounter
	// SlidingWindowLog records the time of each unit, in two bytes (in package memory up to four), so that no Period
	// has more than Count. It rounds times, so that a unit counts for a little longer than the Period, by at most 2^-14
	// of it, and never shorter. If Count is above 1,024, it divides the Period into 32 parts and keeps a count for
	// each, in about 150 bytes whatever the Count. (In addition, a store has a fixed overhead for each key.) In this
	// case, too, no Period has more than Count, but under constant demand only 32/33 of Count pass. So steady traffic
	// at the limit loses 3 %, and a client that takes all of Count at once, exactly once a Period, is denied every
	// second time, because units expire only after 33/32 of the Period.
	SlidingWindowLog
	// SlidingWindowLogExact is SlidingWindowLog to the microsecond: a unit counts for exactly one Period. Package
	// memory keeps 16 to 32 bytes for each microsecond in which units were taken. Package redisstore keeps at most
	// seven bytes for each unit: three if the Period is a few seconds, four up to an hour, five for a day. Count is
	// at most 1,048,576.
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

// Algorithms returns all algorithms, in the order of their constants.
func Algorithms() []Algorithm {
	all := make([]Algorithm, len(algorithmNames))
	for i := range all {
		all[i] = Algorithm(i)
	}
	return all
}

// ParseAlgorithm returns the algorithm with the given name, for example "token_bucket".
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

// bursts reports whether the algorithm has a Burst.
func (a Algorithm) bursts() bool { return a <= GCRA }

// Limit is a rate as people write it: Count units per Period.
type Limit struct {
	// Count is the number of units per Period, at least 1.
	Count int64
	// Period is a whole number of microseconds, at least one. If MonthDay is set, leave Period at zero: [NewPlan]
	// then sets it to 31 days.
	Period time.Duration
	// Burst is the largest number of units that pass at once, or that wait in the queue of a [LeakyBucket]. Zero
	// means the default: Count, or for a LeakyBucket the number of units that drain in [DefaultQueueTime], if that
	// is less. Windows and logs have no Burst.
	Burst int64
	// Algorithm is the way in which the limit counts.
	Algorithm Algorithm
	// MonthDay, from 1 to 31, makes the period a month of the calendar in UTC. It begins at midnight on this day,
	// or on the last day of the month if the month has fewer days. Only FixedWindow counts by the calendar. Limits
	// that do not count by the calendar have 0.
	MonthDay int
	// Money is the number of micro-USD in a unit of Count and Burst, for a limit in USD. [ParseLimit] sets it to 1.
	// A larger value is for limits with numbers that would be too large to be exact in micro-USD. Callers round
	// costs up to whole units. Limits with different Money never share a count. Limits that do not count money have
	// 0.
	Money int64
}

// DefaultQueueTime is the longest time that a [LeakyBucket] without a Burst makes a request wait for its turn. If
// less than one unit drains in this time, the Burst is 1.
const DefaultQueueTime = 10 * time.Second

var units = []struct {
	name string
	d    time.Duration
}{
	{"second", time.Second}, {"minute", time.Minute}, {"hour", time.Hour}, {"day", 24 * time.Hour},
	{"sec", time.Second}, {"min", time.Minute}, {"s", time.Second}, {"m", time.Minute}, {"h", time.Hour}, {"d", 24 * time.Hour},
}

// ParseLimit reads a limit such as "100/minute", "5/90s" or "100/minute burst 20". The period is second, minute,
// hour or day, or a duration such as 90s, 1h30m, 250ms or 7d. The result's Algorithm is the zero value.
//
// Limits of money are written "50 USD/day" or "0.50 USD/hour burst 2 USD". Their unit is a micro-USD: see
// [Limit.Money].
//
// Limits by the calendar are written "10000/month" or "10000/month from 15": see [Limit.MonthDay]. Their Algorithm
// is FixedWindow.
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
		return Limit{}, fmt.Errorf("there is no period after the \"/\"")
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
		return Limit{}, fmt.Errorf("%.60q after the period is not \"burst N\"", strings.Join(words[1:], " "))
	}
	return l, nil
}

// parseMonth reads the words after "month".
func parseMonth(count int64, words []string) (Limit, error) {
	l := Limit{Count: count, Period: longestMonth, Algorithm: FixedWindow, MonthDay: 1}
	switch {
	case len(words) == 0:
		return l, nil
	case words[0] == "burst":
		return Limit{}, fmt.Errorf("a month of the calendar has no burst: leave it out, or write 30d in place of month")
	case len(words) != 2 || words[0] != "from":
		return Limit{}, fmt.Errorf("%.60q after the month is not \"from DAY\"", strings.Join(words, " "))
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

// parseAmount reads a count, or an amount such as "0.50 USD", which it returns in micro-USD. It also returns the
// Money of such a limit.
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

// ParsePeriod reads second, minute, hour or day, or a duration such as 90s, 1h30m, 250ms or 7d. The result is
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

// parseLength reads a duration as time.ParseDuration does. The duration may start with a number of days, as in
// 7d12h.
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
	case "month": // a period here has a fixed length
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

// String returns the text that [ParseLimit] reads. It does not contain the algorithm.
func (l Limit) String() string {
	s := l.Amount(l.Count) + "/" + l.period()
	if l.Burst != 0 {
		s += " burst " + l.Amount(l.Burst)
	}
	return s
}

// Amount formats units of the limit for people: as digits or, for a limit in USD, as an amount such as "0.50 USD".
func (l Limit) Amount(units int64) string {
	if l.Money == 0 {
		return strconv.FormatInt(units, 10)
	}
	return printable.FormatMoney(l.Value(units))
}

// Value converts units of the limit for programs. For a limit in USD it returns micro-USD, or the largest int64 if
// the amount is above that. For any other limit it returns the units unchanged.
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

// check returns an error if l is invalid. Whether the numbers can be exact is checked by [kernel.New].
func (l Limit) check() error {
	if l.Count < 1 {
		return fmt.Errorf("the count is %d, and must be at least 1", l.Count)
	}
	if l.Money < 0 {
		return fmt.Errorf("a unit is %d micro-USD, and must be at least 1, or 0 for a limit that does not count money", l.Money)
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
		return fmt.Errorf("the month begins on day %d, which must be from 1 to 31", l.MonthDay)
	case l.Period != 0 && l.Period != longestMonth:
		return fmt.Errorf("the period of a month of the calendar is %v: leave it at zero", l.Period)
	case l.Algorithm != FixedWindow:
		return fmt.Errorf("%v does not count by the calendar: use fixed_window, or write 30d in place of month", l.Algorithm)
	case l.Burst != 0:
		return fmt.Errorf("a month of the calendar has no burst: leave it out")
	}
	return nil
}

// burst returns Burst, or the default if it is zero. It must be called only after check.
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
