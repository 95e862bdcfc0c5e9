package remote

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
)

// subjectArgs are the arguments of a command: a rule, values of its key, and the rest.
type subjectArgs struct {
	rule string
	key  map[string]string
	rest []string
}

// syntax describes the arguments that a command takes in addition to PART=VALUE.
type syntax struct {
	rule bool // the first argument is RULE
	rest bool // other arguments may follow, in any order
	any  bool // PART=VALUE may be left out
}

// parse parses the arguments of a command.
func (x syntax) parse(command string, args []string) (s subjectArgs, err error) {
	s.key = map[string]string{}
	for i, arg := range args {
		part, value, pair := strings.Cut(arg, "=")
		switch {
		case x.rule && i == 0 && pair:
			return s, fmt.Errorf("%s: missing rule: write its name before %.60q", command, arg)
		case x.rule && i == 0:
			s.rule = arg
		case !pair && x.rest:
			s.rest = append(s.rest, arg)
		case part == "" || !pair:
			return s, fmt.Errorf("%s: %.60q: write a key part and its value, as in client_ip=192.0.2.7", command, arg)
		default:
			if _, twice := s.key[part]; twice {
				return s, fmt.Errorf("%s: %s occurs twice", command, part)
			}
			s.key[part] = value
		}
	}
	switch {
	case x.rule && s.rule == "":
		return s, fmt.Errorf("%s: missing rule: write its name, and then values of its key, as in client_ip=192.0.2.7", command)
	case !x.any && len(s.key) == 0:
		return s, fmt.Errorf("%s: missing subject, for example api_key=k-42", command)
	}
	return s, nil
}

// query returns the query of a subject.
func (s *subjectArgs) query() url.Values {
	q := url.Values{}
	for part, value := range s.key {
		q.Set("key."+part, value)
	}
	if s.rule != "" {
		q.Set("rule", s.rule)
	}
	return q
}

// keyText returns a key in the syntax of the commands.
func keyText(key map[string]string) string {
	var all []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		all = append(all, part+"="+key[part])
	}
	return printable.Line(strings.Join(all, " "))
}
