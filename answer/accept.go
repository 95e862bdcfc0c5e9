package answer

import (
	"net/textproto"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// offers are the media types of a denial, the default first.
var offers = [...]string{"application/problem+json", "application/json", "text/plain"}

// named is how exact a media range is that is a whole media type: see [weigh].
const named = 3

const (
	problemJSON = iota
	plainJSON
	plainText
)

// negotiate returns the index of the offer that the Accept fields prefer: the one with the highest weight, then the one
// with the more specific range, then the first. A client that accepts none of the offers gets the default, because a
// denial has no other form. So does a client with a longer Accept than honest clients send, because denials must stay
// cheap.
func negotiate(accept []string) int {
	i, _, _ := best(accept, offers[:])
	return i
}

// best returns the index, in types, of the media type that the Accept fields prefer, and how well it matches them: see
// [weigh]. Without Accept fields, every type is accepted.
func best(accept, types []string) (best, bestWeight, bestExact int) {
	switch {
	case len(accept) == 0:
		return 0, 1000, 1
	case tooMany(accept):
		return 0, 0, 0
	}
	for i, offer := range types {
		weight, exact := weigh(accept, offer)
		if weight > bestWeight || weight == bestWeight && weight > 0 && exact > bestExact {
			best, bestWeight, bestExact = i, weight, exact
		}
	}
	return best, bestWeight, bestExact
}

// negotiateOwn returns the index of the policy's own body that the Accept fields prefer, or -1 if they prefer a
// built-in body. On a tie, the policy's own body wins, unless it is HTML. HTML is only for clients that name it.
func negotiateOwn(accept []string, own *policy.OwnAnswer) int {
	if len(own.Types) == 0 {
		return -1
	}
	types := own.Types
	i, weight, exact := best(accept, types)
	for len(types) > 0 && own.Page(i) && exact < named {
		types = types[:len(types)-1] // HTML is last
		i, weight, exact = best(accept, types)
	}
	_, builtIn, builtInExact := best(accept, offers[:])
	switch {
	case weight == 0, weight < builtIn:
		return -1
	case weight == builtIn && (exact < builtInExact || exact == builtInExact && own.Page(i)):
		return -1
	}
	return i
}

// An Accept list is read only within these bounds, because each type of a policy is compared with the whole list.
const (
	maxElements = 100     // lines; media types and parameters together may be twice as many
	maxAccept   = 8 << 10 // bytes
)

func tooMany(accept []string) bool {
	if len(accept) > maxElements || elements(accept, ",")+elements(accept, ";") > 2*maxElements {
		return true
	}
	size := 0
	for _, line := range accept {
		size += len(line)
	}
	return size > maxAccept
}

// elements returns the number of elements in the lines of a list.
func elements(lines []string, separator string) int {
	n := len(lines)
	for _, line := range lines {
		n += strings.Count(line, separator)
	}
	return n
}

// weigh returns the weight of the most exact media range that matches the media type offer, in thousandths, and how
// exact this range is: 1 for */*, 2 for text/* and 3 for text/plain. It returns 0 and 0 if no range matches.
func weigh(accept []string, offer string) (weight, exact int) {
	for _, line := range accept {
		for element := range strings.SplitSeq(line, ",") {
			mediaRange, parameters, _ := strings.Cut(element, ";")
			e := exactness(textproto.TrimString(mediaRange), offer)
			if e <= exact {
				continue
			}
			if w, ok := quality(parameters); ok {
				weight, exact = w, e
			}
		}
	}
	return weight, exact
}

func exactness(mediaRange, offer string) int {
	kind, _, _ := strings.Cut(offer, "/")
	switch {
	case strings.EqualFold(mediaRange, offer):
		return named
	case len(mediaRange) == len(kind)+2 && strings.HasSuffix(mediaRange, "/*") && strings.EqualFold(mediaRange[:len(kind)], kind):
		return 2
	case mediaRange == "*/*":
		return 1
	}
	return 0
}

// quality returns the q of a media range's parameters in thousandths, or 1000 without a q. ok is false if q is not
// a number from 0 to 1 with at most three decimals.
func quality(parameters string) (thousandths int, ok bool) {
	for p := range strings.SplitSeq(parameters, ";") {
		name, value, _ := strings.Cut(textproto.TrimString(p), "=")
		if !strings.EqualFold(name, "q") {
			continue
		}
		whole, decimals, _ := strings.Cut(value, ".")
		if whole != "0" && whole != "1" || len(decimals) > 3 || strings.Trim(decimals, "0123456789") != "" {
			return 0, false
		}
		q := int(whole[0] - '0')
		for i := range 3 {
			q *= 10
			if i < len(decimals) {
				q += int(decimals[i] - '0')
			}
		}
		return q, q <= 1000
	}
	return 1000, true
}
