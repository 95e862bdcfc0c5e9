package spoe

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
)

func TestQuestions(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/questions.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p := serve(t, policytest.Engine(t, c.Setup))
				p.greet()
				c.Play(t, func(step string) string {
					step, all := strings.CutPrefix(step, "all ")
					f := p.ask(argumentsOf(t, step)...)
					status, log := f.set["status"], p.log.text()
					if f.set["allowed"] != (status == 200) {
						t.Errorf("%s: %v", step, f.set)
					}
					if !all {
						return strings.TrimSpace(fmt.Sprintln(status, log))
					}
					var lines []string
					for _, name := range slices.Sorted(maps.Keys(f.set)) {
						lines = append(lines, fmt.Sprintf("%s = %v", name, f.set[name]))
					}
					return strings.Join(lines, "\n")
				})
			})
		})
	}
}

// argumentsOf parses a step of testdata/questions.txt. The first lines of the file explain the format.
func argumentsOf(t *testing.T, step string) (all []string) {
	t.Helper()
	head, rest, _ := strings.Cut(step, "\n")
	words := strings.Fields(head)
	args := map[string]string{
		"method": stringArg("method", words[0]), "path": stringArg("path", words[1]), "host": stringArg("host", "api.example"),
		"src": typed(t, "src", "@192.0.2.1"),
	}
	var fields string
	for line := range strings.Lines(rest) {
		line = strings.TrimSuffix(line, "\n")
		if body, found := strings.CutPrefix(line, "body:"); found {
			args["body"] = text("body") + "\x09" + text(body)
			continue
		}
		name, value, _ := strings.Cut(line, ": ")
		fields += text(name) + text(value)
	}
	args["headers"] = text("headers") + "\x09" + text(fields+"\x00\x00")
	for _, word := range words[2:] {
		name, value, given := strings.Cut(word, "=")
		if given {
			args[name] = typed(t, name, value)
		} else {
			delete(args, strings.TrimPrefix(name, "-"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		all = append(all, args[name])
	}
	return all
}

// typed returns an argument. The form of the value determines its type.
func typed(t *testing.T, name, value string) string {
	t.Helper()
	switch {
	case value == "null":
		return nullArg(name)
	case value == "true":
		return text(name) + "\x11"
	case strings.HasPrefix(value, "#"):
		n, err := strconv.ParseUint(value[1:], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		return numberArg(name, n)
	case strings.HasPrefix(value, "@"):
		addr := netip.MustParseAddr(value[1:])
		return text(name) + map[bool]string{true: "\x06", false: "\x07"}[addr.Is4()] + string(addr.AsSlice())
	}
	return stringArg(name, strings.TrimPrefix(value, "text:"))
}
