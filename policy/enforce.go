package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"strconv"
	"strings"
)

// everybody is the share of a rule that is enforced for all subjects, in hundredths of a percent.
const everybody = 100_00

// enforce reads for which share of its subjects a rule is enforced; 0 is all.
func (c *compiler) enforce(r *Rule) uint16 {
	if r.Enforce == "" {
		return 0
	}
	const hint = `write for example "10%"`
	number, isPercent := strings.CutSuffix(r.Enforce, "%")
	share, ok := hundredths(number)
	switch {
	case !isPercent || !ok:
		c.fail("enforce", hint, "the share %.20q is not a percentage with at most two decimals", r.Enforce)
		return 0
	case share == 0:
		c.fail("enforce", "write \"shadow: true\", if it is to refuse nobody", "the share must be above 0 %%")
	case share > everybody:
		c.fail("enforce", hint, "the share must be at most 100 %%")
		return 0
	}
	switch {
	case r.Shadow:
		c.fail("enforce", "remove one of them", "a shadow is enforced for nobody")
	case len(r.Key)+len(r.Share.By) == 0:
		c.fail("enforce", "give it a key, or remove \"enforce\"", "a rule without a key has no subjects to choose from")
	}
	return uint16(share % everybody)
}

// hundredths reads a number such as 10, 0.5 or 12.25, in hundredths. More than 999 is no share.
func hundredths(s string) (n int, ok bool) {
	whole, part, dot := strings.Cut(s, ".")
	if !isDigits(whole) || len(whole) > 3 || dot && !isDigits(part) || len(part) > 2 {
		return 0, false
	}
	n, err := strconv.Atoi(whole + (part + "00")[:2])
	return n, err == nil
}

// shareText writes hundredths as people do.
func shareText(share uint16) string {
	s := strconv.Itoa(int(share / 100))
	if part := share % 100; part > 0 {
		s += strings.TrimSuffix("."+strconv.Itoa(int(part) + 100)[1:], "0")
	}
	return s + " %"
}

// isPartial reports whether the rule is enforced for a share of its subjects, and is a shadow for
// the others.
func (r *rule) isPartial() bool { return r.share > 0 }

// isLenient reports whether the rule lets pass what it would refuse as malformed: what lacks a part
// of its key has no subject of which one could tell whether it is enforced for that.
func (r *rule) isLenient() bool { return r.shadow || r.isPartial() }

// isShadowFor reports whether the rule only watches the subject of a key, without its hash tag. It
// is the same on every instance, and who is enforced at a share is so at every larger one.
func (r *rule) isShadowFor(key []byte) bool {
	if !r.isPartial() {
		return r.shadow
	}
	sum := sha256.Sum256(key)
	at, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), everybody)
	return uint16(at) >= r.share
}

// whyPartial says for whom the rule is enforced.
func (r *rule) whyPartial(watched bool) string {
	s := "enforced for " + shareText(r.share)
	if watched {
		return s + ": this subject is not"
	}
	return s + ": this subject is"
}

// onlyWatched says why a rule that would refuse does not.
func (r *rule) onlyWatched() string {
	if r.isPartial() {
		return " (only watched)"
	}
	return " (only watched: a shadow never refuses)"
}
