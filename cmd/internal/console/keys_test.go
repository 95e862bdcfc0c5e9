package console

import "testing"

func TestWords(t *testing.T) {
	for _, c := range [][3]string{
		{"100/minute", "token_bucket", "100 per minute"},
		{"100/minute burst 20", "", "100 per minute, up to 20 at once"},
		{"10000/month from 3", "fixed_window", "10,000 per month (UTC), from day 3 on"},
		{"5/90s", "sliding_window_log", "5 per 1m30s, sliding window log"},
		{"nonsense", "", "nonsense"},
	} {
		if got := limitWords(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s is %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
