package bytesize

import "testing"

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "17B": 17, "64KiB": 64 << 10, "8MiB": 8 << 20, "2 GiB": 2 << 30, "8589934591GiB": 8589934591 << 30,
		"": -1, "KiB": -1, "-1": -1, "8MB": -1, "1.5MiB": -1, "8589934592GiB": -1,
	} {
		n, err := Parse(text)
		if (err == nil) != (want >= 0) || err == nil && n != want {
			t.Errorf("%q is %d, %v, want %d", text, n, err, want)
		}
		if back, err := Parse(Text(n)); err != nil || back != n {
			t.Errorf("%d is written %q, which is %d", n, Text(n), back)
		}
	}
}
