package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// maxBlocks is the maximum number of blocks that an engine can have. The number is bounded because adding a block
// copies all of them.
const maxBlocks = 10_000

// blocked is From in a [Result] for a rule with "block", or for a subject that [Subject.Block] blocks.
const blocked = "block"

// Block describes a subject that [Subject.Block] has blocked.
type Block struct {
	Key   string // see [Subject.Key]
	Until time.Time
}

// Block denies, until the given time, all requests that the rule would count for the subject, and charges nothing for
// them. The block applies in this engine only. It outlives a change of the policy, and applies whether or not the
// store answers. In a fleet, call Block on each engine, or use an override with block. Requests that another rule
// exempts still pass; an override that exempts the subject does not lift the block.
func (s *Subject) Block(until time.Time) error {
	switch {
	case s.engine.Policy().watchOnly:
		return fmt.Errorf("policy: the whole policy is in shadow mode, so rule %q denies nothing", s.rule.name)
	case s.rule.shadow:
		return fmt.Errorf("policy: rule %q is in shadow mode, and denies nothing", s.rule.name)
	case s.shadow:
		return fmt.Errorf("policy: rule %q is enforced for %s of its subjects, but not for this one", s.rule.name, shareText(s.rule.rollout))
	case !until.After(time.Now()):
		return fmt.Errorf("policy: the end of the block of %s has passed: %v", s.key, until)
	}
	// AdhocInto reuses the memory of s.key.
	return s.engine.changeBlocks(func(all map[string]int64) { all[strings.Clone(s.key)] = until.UnixMicro() })
}

// Unblock lifts the block that Block has set.
func (s *Subject) Unblock() {
	_ = s.engine.changeBlocks(func(all map[string]int64) { delete(all, s.key) }) // removing one never exceeds maxBlocks
}

// Blocked reports whether Block has blocked the subject, and until when. An override can block the subject, too: see
// Override.
func (s *Subject) Blocked() (until time.Time, yes bool) {
	at := s.engine.blocksNow()[s.key]
	return time.UnixMicro(at), at > time.Now().UnixMicro()
}

// Blocks returns the blocks in force, sorted by key.
func (e *Engine) Blocks() []Block {
	var all []Block
	now := time.Now().UnixMicro()
	for key, until := range e.blocksNow() {
		if until > now {
			all = append(all, Block{key, time.UnixMicro(until)})
		}
	}
	slices.SortFunc(all, func(a, b Block) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// blocksNow returns the end of each block by the subject's key, in microseconds since the Unix epoch.
func (e *Engine) blocksNow() map[string]int64 {
	if all := e.blocks.Load(); all != nil {
		return *all
	}
	return nil
}

// changeBlocks replaces the blocks with a changed copy, which has no expired blocks.
func (e *Engine) changeBlocks(change func(map[string]int64)) error {
	e.blocking.Lock()
	defer e.blocking.Unlock()
	now := time.Now().UnixMicro()
	all := maps.Clone(e.blocksNow())
	if all == nil {
		all = make(map[string]int64)
	}
	maps.DeleteFunc(all, func(_ string, until int64) bool { return until <= now })
	if change(all); len(all) > maxBlocks {
		return fmt.Errorf("policy: %d subjects are blocked, which is the maximum: unblock some, or use overrides", maxBlocks)
	}
	e.blocks.Store(&all)
	return nil
}

// blockedSubject is a blocked subject of the request.
type blockedSubject struct {
	rule         *rule
	from, source string // see Result
	until        int64  // in microseconds since the Unix epoch; 0: no end
	key          string
	shadow       bool // it does not deny the request
}

// isBlocked reports whether the subject of the key in s.keys is blocked, by the engine or by an override that ends at
// until. If so, isBlocked adds the subject to s.blocked.
func (s *subjects) isBlocked(in *input, r *rule, by *resolved, until int64, shadow bool) bool {
	inEngine := int64(0)
	if !shadow {
		inEngine = s.blockedUntil(in)
	}
	if inEngine == 0 && !by.block || in.mode == GiveBack && !by.block {
		return false
	}
	b := blockedSubject{r, by.from, by.source, until, s.keys.Key(nil), shadow}
	if inEngine != 0 {
		b.from, b.source, b.until = blocked, "", inEngine
	}
	s.blocked = append(s.blocked, b)
	return true
}

// blockedUntil returns the time until which the engine blocks the subject of the key in s.keys, or 0.
func (s *subjects) blockedUntil(in *input) int64 {
	if len(s.blocks) == 0 {
		return 0
	}
	if until := s.blocks[string(s.keys.Bytes())]; until > in.clock() {
		return until
	}
	return 0
}

// refuseBlocked denies the request if one of its subjects is blocked, and reports whether it has done so. Nothing is
// taken for such a request, and the state of the limits is unknown.
func (d *Decision) refuseBlocked(w *work) bool {
	for i := range w.subjects.blocked {
		if b := &w.subjects.blocked[i]; !b.shadow {
			d.Blocked = cmp.Or(d.Blocked, b.rule.name)
			d.RetryAfter = max(d.RetryAfter, b.lasts(&w.input))
		}
	}
	return d.Blocked != ""
}

// lasts returns how long the block lasts, or [sluice.Never] if it has no end.
func (b *blockedSubject) lasts(in *input) time.Duration {
	if b.until == 0 {
		return sluice.Never
	}
	return min(time.UnixMicro(b.until).Sub(time.UnixMicro(in.clock())), sluice.Never-1)
}

// barred returns the first rule with "block" that applies and is no shadow, or nil.
func (m *matches) barred() *rule {
	for _, r := range m.barring {
		if !r.shadow {
			return r
		}
	}
	return nil
}

// refuseBarred denies a request that a rule with "block" blocks. No rule counts the request.
func refuseBarred(d *Decision, by *rule) {
	d.Blocked, d.RetryAfter = by.name, sluice.Never
}

// addBlocks adds the rules with "block" that apply, and the blocked subjects, to d, after the results of limits. It
// adds nothing for an exempt request.
func (d *Decision) addBlocks(w *work) {
	if d.Exempt {
		return
	}
	for _, r := range w.matches.barring {
		d.Results = append(d.Results, Result{
			Rule: r.name, From: blocked, Source: r.source, Shadow: r.shadow, at: int32(r.index) + 1, Decision: sluice.Decision{RetryAfter: sluice.Never},
		})
	}
	for i := range w.subjects.blocked {
		b := &w.subjects.blocked[i]
		d.Results = append(d.Results, Result{
			Rule: b.rule.name, From: b.from, Source: b.source, Shadow: b.shadow, at: int32(b.rule.index) + 1, Decision: sluice.Decision{RetryAfter: b.lasts(&w.input)},
		})
	}
}
