package control

import "testing"

func TestPointer(t *testing.T) {
	for path, want := range map[string]string{
		"rules[3]":                                "",
		"rules[3].limit":                          "/limit",
		`rules[3].headers["X-Plan"]`:              "/headers/X-Plan",
		`rules[3].tiers["a.b[0]/\"]~"].limits[2]`: `/tiers/a.b[0]~1"]~0/limits/2`,
		`rules[3].key["12"]`:                      "/key/12",
	} {
		if got, ok := pointer(path, "rules[3]"); got != want || !ok {
			t.Errorf("%s: %q %v, want %q", path, got, ok, want)
		}
	}
	for _, path := range []string{"rules[33]", "rules[3]x", "overrides[3].key"} {
		if got, ok := pointer(path, "rules[3]"); ok {
			t.Errorf("%s: %q", path, got)
		}
	}
}
