package printable_test

import (
	"math"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/printable"
)

func TestFormatMoney(t *testing.T) {
	t.Parallel()
	for micro, want := range map[int64]string{
		0: "0 USD", 1: "0.000001 USD", 125: "0.000125 USD", 500_000: "0.50 USD", 1_250_000: "1.25 USD",
		50_000_000: "50 USD", 999_999_937: "999.999937 USD", -500_000: "-0.50 USD",
		math.MaxInt64: "9223372036854.775807 USD", math.MinInt64: "-9223372036854.775808 USD",
	} {
		got := printable.FormatMoney(micro)
		if got != want {
			t.Errorf("%d is %q, want %q", micro, got, want)
		}
		if micro < 0 || micro == math.MaxInt64 {
			continue
		}
		if back, err := printable.ParseDecimal(strings.TrimSuffix(got, " USD")); back != micro || err != nil {
			t.Errorf("%q is read as %d, %v", got, back, err)
		}
	}
}

func TestParseDecimal(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"50": 50_000_000, "0.125": 125_000, "007.10": 7_100_000, "1.2500000000": 1_250_000, "0": 0, "0.000001": 1,
		"9223372036853": 9_223_372_036_853_000_000,
	} {
		if got, err := printable.ParseDecimal(text); got != want || err != nil {
			t.Errorf("%q is %d, %v, want %d", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", ".", "1.", ".5", "-1", "+1", "1e3", "1,000", "1_000", " 1", "0.0000001", "0x10", "٣", "1.2.3",
		"9223372036854", "99999999999999999999", "inf", "NaN",
	} {
		if got, err := printable.ParseDecimal(text); err == nil {
			t.Errorf("%q is read as %d", text, got)
		}
	}
}
