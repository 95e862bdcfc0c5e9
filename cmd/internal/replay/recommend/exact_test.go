package recommend

import (
	"math"
	"math/big"
	"testing"
)

func parseShare(t testing.TB, s string) *big.Rat {
	t.Helper()
	r, err := ParseShare(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParseShare(t *testing.T) {
	for text, want := range map[string]*big.Rat{"0.1%": big.NewRat(1, 1000), "95%": big.NewRat(19, 20), " 0.001": big.NewRat(1, 1000), ".5": big.NewRat(1, 2)} {
		if got := parseShare(t, text); got.Cmp(want) != 0 {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"", "%", "0", "100%", "1", "-1%", "1e-3", "1/2", "0x1", "NaN", "0.1%%", "1.2.3"} {
		if r, err := ParseShare(text); err == nil {
			t.Errorf("%q is read as %v", text, r)
		}
	}
}

// TestConfidenceExact compares the confidence with sums of exact fractions.
func TestConfidenceExact(t *testing.T) {
	for _, text := range []string{"0.1%", "3%", "37.5%"} {
		p := parseShare(t, text)
		q := new(big.Rat).Sub(big.NewRat(1, 1), p)
		for _, n := range []int{1, 2, 7, 60} {
			sum := new(big.Rat)
			for j := range n {
				term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(j)))
				for range j {
					term.Mul(term, p)
				}
				for range n - j {
					term.Mul(term, q)
				}
				sum.Add(sum, term)
				want, _ := new(big.Rat).Sub(big.NewRat(1, 1), sum).Float64()
				if got := confidence(n, j, p); got < 0 || math.Abs(got-want) > 1e-15*want+1e-70 {
					t.Errorf("confidence(%d, %d, %s) = %v, want %v", n, j, text, got, want)
				}
			}
			for _, sure := range []string{"50%", "95%", "99.9%"} {
				want := -1
				for j := range n {
					if c, _ := parseShare(t, sure).Float64(); confidence(n, j, p) >= c {
						want = j
					}
				}
				if got := mayExceed(n, p, parseShare(t, sure)); got != want {
					t.Errorf("mayExceed(%d, %s, %s) = %d, want %d", n, text, sure, got, want)
				}
			}
		}
	}
}

// The number of subjects needed for 0.1 % at 95 % is the one in published tables, and one less is not enough.
func TestWilks(t *testing.T) {
	p, sure := parseShare(t, "0.1%"), parseShare(t, "95%")
	if got := needed(p, sure); got != 2995 {
		t.Errorf("needed = %d, want 2995", got)
	}
	if got := needed(parseShare(t, "5%"), sure); got != 59 {
		t.Errorf("needed for 5%% = %d, want 59", got)
	}
	if got := mayExceed(2994, p, sure); got != -1 {
		t.Errorf("of 2994 subjects %d may be above", got)
	}
	if got := mayExceed(2995, p, sure); got != 0 {
		t.Errorf("of 2995 subjects %d may be above", got)
	}
	if got := attainable(2995, sure); got > 0.001 || got < 0.000999 {
		t.Errorf("2995 subjects attain %v", got)
	}
	if c := confidence(1_000_000, 900, p); c < 0.99 || c >= 1 {
		t.Errorf("confidence of a million, 900 above: %v", c)
	}
}

func TestNextDayExact(t *testing.T) {
	binomial := func(n, k int) *big.Rat {
		return new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(k)))
	}
	for _, c := range []struct{ n, j, m int }{{10, 0, 10}, {30, 2, 17}, {5, 4, 9}, {100, 3, 1}} {
		sum := new(big.Rat)
		for e := 0; e <= c.m; e++ {
			p := binomial(c.j+e, e)
			p.Mul(p, binomial(c.n-c.j-1+c.m-e, c.m-e))
			p.Quo(p, binomial(c.n+c.m, c.m))
			sum.Add(sum, p)
			want, _ := sum.Float64()
			if got := nextDay(c.n, c.j, c.m, e); math.Abs(got-want) > 1e-14 {
				t.Errorf("%+v: at most %d: %v, want %v", c, e, got, want)
			}
		}
		if sum.Cmp(big.NewRat(1, 1)) != 0 {
			t.Errorf("%+v: the oracle adds up to %v", c, sum)
		}
	}
	// These are the published numbers of subjects, of n, that may be above in a log so that the promise holds for the
	// next n at 95 %.
	for _, c := range []struct{ n, times, want int }{{3_000, 2, 1}, {10_000, 1, 3}, {10_000, 2, 10}, {50_000, 1, 34}, {50_000, 2, 78}} {
		j := -1
		for nextDay(c.n, j+1, c.n, c.times*c.n/1000) >= 0.95 {
			j++
		}
		if j != c.want {
			t.Errorf("%d subjects, %d times the share: %d, want %d", c.n, c.times, j, c.want)
		}
	}
}
