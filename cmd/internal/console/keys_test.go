package console

import "testing"

func TestWords(t *testing.T) {
	for _, c := range [][3]string{
		{"100/minute", "token_bucket", "100 a minute"},
		{"100/minute burst 20", "", "100 a minute, 20 at once"},
		{"10000/month from 3", "fixed_window", "10,000 a month from the 3rd"},
		{"5/90s", "sliding_window_log", "5 in 1 min 30 s, sliding window log"},
		{"nonsense", "", "nonsense"},
	} {
		if got := limitWords(c[0], c[1]); got != c[2] {
			t.Errorf("%s %s is %q, want %q", c[0], c[1], got, c[2])
		}
	}
}
