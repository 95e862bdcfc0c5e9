package replay

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// traps are the properties of a log that limit the trust in a report.
type traps struct {
	ended      int64 // requests with a known end, but an unknown start
	noPath     int64 // requests that the server could not read
	noClient   int64
	proxies    int64 // requests of a trusted proxy without the client's address
	disbelieve int64 // requests with an untrusted X-Forwarded-For
	preflights int64 // requests that may be preflights
}

func (t *traps) look(e *accesslog.Entry, r *policy.Request, trusted []netip.Prefix) {
	if e.Ended {
		t.ended++
	}
	if r.NoPath {
		t.noPath++
	}
	if r.Method == "OPTIONS" {
		t.preflights++
	}
	switch {
	case !r.Peer.IsValid():
		t.noClient++
	case len(trusted) == 0:
		if len(e.Forwarded) > 0 && len(e.Client) > 0 { // without a client in the log, X-Forwarded-For gives the client
			t.disbelieve++
		}
	case len(e.Forwarded) == 0 && contains(trusted, r.Peer):
		t.proxies++
	}
}

func contains(networks []netip.Prefix, a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

func (t *traps) merge(o *traps) {
	t.ended, t.noPath, t.noClient = t.ended+o.ended, t.noPath+o.noPath, t.noClient+o.noClient
	t.proxies, t.disbelieve, t.preflights = t.proxies+o.proxies, t.disbelieve+o.disbelieve, t.preflights+o.preflights
}

// notes returns the notes of the report, in whole sentences.
func (t *traps) notes(r *Report, c *tally, j *judged, counted []*counts, stats *feed.Stats) (notes []string) {
	say := func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }
	if c.requests == 0 {
		switch {
		case stats.Lines == 0:
			say("The logs are empty.")
		case stats.Skipped == stats.Lines:
			say("No line of the logs is a request: all are comments, empty, or from other loggers. In JSON lines, a request has a method, or a path and a status: map these fields with --field.")
		default:
			say("The logs have no requests.")
		}
		return notes
	}
	coarse, sampled, noClient := false, false, false
	for _, f := range stats.Files {
		if f.Format == "" {
			continue // the file has no line
		}
		coarse = coarse || !f.Tells.Fine
		sampled = sampled || f.Tells.Sampled
		noClient = noClient || !f.Tells.Client
	}
	if sampled {
		say("The log may be sampled, which leaves requests out on purpose. Then counts and peaks are too low by the sampling factor, and bursts cannot be restored.")
	}
	if t.ended > 0 {
		say("%s have only the time at which they ended. A limiter decides when requests begin, so slow requests count later in this report than in live traffic.", requestsOf(t.ended, c.requests))
	}
	if coarse && c.close > 0 {
		say("Times in the log are whole seconds. Within a second, requests are tried in the order of the file. With the true times, up to %s might not occur.", refusalsOf(c.close, c.refused))
	}
	if j.exactLogs {
		say("A sliding_window_log rounds times to a 32,768th of its period. With times in whole seconds, many requests come exactly one period after others, and the rounding would decide about them. So the rule is judged as a sliding_window_log_exact.")
	}
	if n, minute := minutesUsed(c); n == 1 && r.To.Sub(r.From).Hours() > 2 {
		say("All requests are in minute %d of their hour: their times were invented or truncated, and limits over less than an hour are judged too strictly.", minute)
	}
	if c.limited*100 >= c.requests {
		say("%s were answered with 429 or 503. The log of a server behind a limiter has retries, and not the requests that clients would have sent without the limiter.", requestsOf(c.limited, c.requests))
	}
	if stats.Late > 0 {
		say("%s are too far out of order in the log. They count at the latest time before them.", requestsOf(stats.Late, c.requests))
	}
	if stats.Skipped*10 >= stats.Lines && stats.Skipped > 0 {
		say("%s are not requests, such as comments and lines of other loggers, and are not judged.", shareOf(stats.Skipped, stats.Lines, "lines"))
	}
	if stats.Unreadable > 0 {
		say("%s could not be read, and are not judged.", shareOf(stats.Unreadable, stats.Lines, "lines"))
	}
	if t.noPath > 0 {
		say("%s could not be read by the server, or by Sluice: they count under rules that apply to every path.", requestsOf(t.noPath, c.requests))
	}
	if c.malformed > 0 {
		say("%s would be denied as malformed, because they lack a key part, or because servers read the path in several ways. Rules that need neither the key part nor the path still count them.", requestsOf(c.malformed, c.requests))
	}
	if noClient {
		say("The log does not contain the address that connected: the last address of X-Forwarded-For is used in its place.")
	}
	if t.noClient > 0 {
		say("%s have no known client: rules by client_ip have one count for all of them.", requestsOf(t.noClient, c.requests))
	}
	if t.proxies > 0 {
		say("%s came through a trusted proxy, and the log does not contain their clients: each such proxy counts as one client. Log X-Forwarded-For to distinguish clients.", requestsOf(t.proxies, c.requests))
	}
	if t.disbelieve > 0 {
		say("%s have an X-Forwarded-For, and the policy trusts no proxy: the address that connected counts as the client. Name the proxies under trusted_proxies if they are yours.", requestsOf(t.disbelieve, c.requests))
	}
	if t.preflights > 0 && j.document.CORS.Preflights == "exempt" {
		say("%s have the method OPTIONS. The log does not show whether they are preflights, so they are counted, although the policy exempts preflights.", requestsOf(t.preflights, c.requests))
	}
	if names := j.policy.ByOutcome(); len(names) > 0 {
		say("Rules that depend on the outcome of a request get the outcome when the request begins, and not when the response was sent.")
	}
	var evicted int64
	for _, c := range counted {
		evicted += c.store.Evicted()
	}
	if evicted > 0 {
		say("The store had no room for %s states, and has forgotten them: a few denials may be missing.", humanize.Comma(evicted))
	}
	if r.Estimated {
		say("There are more than %s subjects. Their number is estimated, to about 2 %%, and it is unknown how often the additional subjects would be denied.", humanize.Comma(MaxSubjects))
	}
	if c.undecided > 0 {
		say("%s have a time before 1970 or after 2112, and were not judged.", requestsOf(c.undecided, c.requests))
	}
	return notes
}

func requestsOf(n, all int64) string { return shareOf(n, all, "requests") }
func refusalsOf(n, all int64) string { return shareOf(n, all, "denials") }

func shareOf(n, all int64, what string) string {
	share := 100 * float64(n) / float64(all)
	percent := strconv.FormatFloat(share, 'f', 0, 64)
	switch {
	case n > 0 && share < 0.01:
		percent = "under 0.01"
	case n > 0 && share < 10:
		percent = strconv.FormatFloat(share, 'g', 2, 64)
	case n < all && share > 99:
		percent = "over 99"
	}
	return fmt.Sprintf("%s of %s %s (%s %%)", humanize.Comma(n), humanize.Comma(all), what, percent)
}

// minutesUsed returns how many minutes of the hour have requests, and the last of these minutes.
func minutesUsed(c *tally) (n, last int) {
	for i, used := range c.minutes {
		if used {
			n, last = n+1, i
		}
	}
	return n, last
}
