package policyfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

const indented = `version: 1
trusted_proxies:
  - 10.0.0.0/8
tiers:
  from: header:X-Plan
rules:
  - name: health
    match: GET /health
    exempt: true
  # a comment
  - name: per-key
    description: >-
      what every
        key may
    key: [header:X-User,
      client_ip]
    headers:
      X-Plan: pro
      X-Tenant: "*"
    limit: 100/minute
    tiers:
      free: 5/minute
      pro: 1000/minute
  - name: login
    match:
    - POST /login
    - POST /sign-in
    key: client_ip
    limit: 5/minute
overrides:
  - rule: login
    key: {client_ip: 192.0.2.1}
    limit: 50/minute
`

// A line that is moved, and that YAML then does not take, is blamed itself, and told where to
// go. Where a line begins something, it may be the next one that is told to follow it.
func TestMovedLineIsBlamed(t *testing.T) {
	if _, err := policyfile.Parse("f.yaml", []byte(indented)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(indented, "\n")
	blamed := 0
	for i, line := range lines {
		text := strings.TrimLeft(line, " ")
		column := len(line) - len(text)
		for _, move := range []int{-3, -2, -1, 1, 2, 3} {
			if text == "" || column+move < 0 || text == "what every" || text == "key may" {
				continue // text may be anywhere
			}
			if strings.HasPrefix(text, "- POST") && move == -2 {
				continue // that is another rule
			}
			moved := append([]string(nil), lines...)
			moved[i] = strings.Repeat(" ", column+move) + text
			_, err := policyfile.Parse("f.yaml", []byte(strings.Join(moved, "\n")))
			all, _ := errors.AsType[policy.Errors](err)
			if len(all) != 1 || !strings.HasPrefix(all[0].Message, "this is not YAML") {
				continue // it is YAML, and says something else
			}
			blamed++
			at, follows := all[0].Line-1, i < len(lines)-1 && all[0].Line-1 == i+1
			if at != i && !follows || !strings.HasPrefix(all[0].Hint, "begin ") {
				t.Errorf("line %d, %q, moved by %d: %v", i+1, text, move, all[0])
			}
		}
	}
	if blamed < 100 {
		t.Errorf("only %d of the moves are told", blamed)
	}
}
