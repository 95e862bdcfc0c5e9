package redisstore

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
)

func mustPlan(t testing.TB, limit string) *sluice.Plan {
	t.Helper()
	l, err := sluice.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var oddKeys = []string{
	"", "a", "{a}", "{a}b", "{a}{b}", "a{b}", "{}", "{}a", "{", "}", "{a", "a}", "}{", "{{a}}", "={a}", ":a", "#a", "\x00", "\n", "\xff",
	strings.Repeat("x", maxKey), strings.Repeat("x", maxKey+1), strings.Repeat("x", 1<<20),
	"{a}" + strings.Repeat("x", maxKey), "{" + strings.Repeat("x", maxKey) + "}b", "{" + strings.Repeat("x", maxKey) + "}c",
}

// In every form of names, different keys and fingerprints have different names.
func TestNamesDiffer(t *testing.T) {
	plans := []*sluice.Plan{mustPlan(t, "1/s"), mustPlan(t, "2/s")}
	for _, n := range []*naming{
		newNaming("p:", false, nil), newNaming("p:", true, nil),
		newNaming("p:", false, []byte("k")), newNaming("p:", true, []byte("k")),
	} {
		seen := map[string]string{}
		add := func(key string, p *sluice.Plan) string {
			name := string(n.append(nil, &sluice.Charge{Key: key, Plan: p}))
			what := fmt.Sprintf("%.20q %x", key, p.Fingerprint)
			if other, ok := seen[name]; ok && other != what {
				t.Errorf("%s and %s are both named %q", other, what, name)
			}
			seen[name] = what
			return name
		}
		for _, key := range oddKeys {
			for _, p := range plans {
				name := add(key, p)
				if !strings.HasPrefix(name, "p:") || len(name) > maxKey+maxTag {
					t.Errorf("%.20q has the name %.40q, with %d bytes", key, name, len(name))
				}
				if n.secret && len(key) > 2 && strings.Contains(name, key) {
					t.Errorf("%q is readable in %q", key, name)
				}
				if n.cluster && slot([]byte(name)) != n.slot(key) {
					t.Errorf("the slot of %q is not that of its key", name)
				}
			}
		}
	}
}

// slot returns the slot that a real server reports, and keys that begin with the same hash tag have the same slot.
func TestSlots(t *testing.T) {
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(testkit.Port(t)))
	p := mustPlan(t, "1/s")
	for _, secret := range [][]byte{nil, []byte("k")} {
		n := newNaming("p:", true, secret)
		for _, key := range oddKeys {
			name := n.append(nil, &sluice.Charge{Key: key, Plan: p})
			if got, want := fmt.Sprint(slot(name)), server.Do("CLUSTER", "KEYSLOT", string(name)); got != want {
				t.Errorf("slot of %.40q: %s, want %s", name, got, want)
			}
		}
		for _, tag := range []string{"a", strings.Repeat("x", 100), strings.Repeat("x", 300)} {
			if n.slot("{"+tag+"}a") != n.slot("{"+tag+"}"+strings.Repeat("b", 500)) {
				t.Errorf("keys with the tag %.10q have different slots", tag)
			}
		}
	}
}

// With a secret, names contain HMACs that other programs with the secret can compute, as the command below does.
func TestSecretNames(t *testing.T) {
	n := newNaming("p:", false, []byte("secret"))
	other := newNaming("p:", false, []byte("other"))
	c := &sluice.Charge{Key: "{alice}login", Plan: &sluice.Plan{Plan: kernel.Plan{Fingerprint: 1}}}
	// printf 'tag:alice' | openssl dgst -sha256 -hmac secret -binary | head -c 16 | base64
	want := "p:AAAAAAAAAAE#{awH3c_T4IAUT3hGJV8JRjw}-rNrFXINTQcjQsgk8GiSqw"
	if got := string(n.append(nil, c)); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if string(other.append(nil, c)) == want {
		t.Error("another secret gives the same name")
	}
}

func TestTooOld(t *testing.T) {
	for version, want := range map[string]bool{
		"5.0.14": true, "6.0.20": true, "6.2.0": false, "7.0.15": false, "10.0.1": false, "": false, "unstable": false,
	} {
		if got := tooOld(version); got != want {
			t.Errorf("%q: %t, want %t", version, got, want)
		}
	}
}
