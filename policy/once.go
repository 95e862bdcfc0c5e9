package policy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// RepeatedWithin is how long the ID of a request that was let through is remembered.
const RepeatedWithin = time.Minute

var oncePlan = func() *sluice.Plan {
	p, err := sluice.NewOnce(RepeatedWithin)
	if err != nil {
		panic(err) // the limit is a constant
	}
	return p
}()

// What is done once.
const (
	askedOnce   = 'q'
	settledOnce = 's'
)

// addOnce adds the charge of the request's ID behind those of limits.
func (s *scratch) addOnce() {
	once := s.onceCharge(1)
	if s.charges = append(s.charges, once); s.mode != GiveBack {
		return
	}
	// What is given back was not taken: whoever asks for it again is charged again.
	forgotten := s.onceCharge(-1)
	forgotten.Cost = -1
	s.charges = append(s.charges, forgotten)
}

// onceAt returns which charge is that of the request's ID, if there is one.
func (s *scratch) onceAt() int { return len(s.results) + len(s.tenants) }

// onceCharge returns the charge of the request's ID for so many times what it charges.
func (s *scratch) onceCharge(times int64) sluice.Charge {
	s.onceText = appendAsked(append(s.onceText[:0], askedOnce), s.request.ID, s.charges[:s.onceAt()], times)
	return onceCharge(&s.keys, s.onceText, s.charges[0].Key)
}

// onceCharge returns the charge of what is asked once. Its key begins with "!" or has it behind the
// hash tag, and a "/": that of no rule, of no subject of a caller's and of no limiter is like it.
// The tag is that of another charge, so that a cluster commits both in one step.
func onceCharge(k *parts.Keys, asked []byte, beside string) sluice.Charge {
	sum := sha256.Sum256(asked)
	var text [24]byte
	key := base64.RawURLEncoding.AppendEncode(append(text[:0], "!/"...), sum[:16])
	return sluice.Charge{Key: k.Beside(beside, key), Plan: oncePlan, Cost: 1, OnError: sluice.Local}
}

// appendAsked appends what tells one question from all others: its ID, and what it asks for, which
// is so many times what the charges say.
func appendAsked(dst []byte, id string, charges []sluice.Charge, times int64) []byte {
	dst = appendText(dst, id)
	for i := range charges {
		c := &charges[i]
		dst = appendText(dst, c.Key)
		dst = binary.LittleEndian.AppendUint64(dst, c.Plan.Fingerprint)
		cost := times * c.Cost
		if isTurn(c.Plan) { // which takes another time when it is asked again
			cost = 0
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(cost))
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// repeats reports whether the store has refused the charge of the request's ID.
func (s *scratch) repeats() bool {
	once := s.onceAt()
	return once < s.firstLock && !s.receipts[once].Fits && s.receipts[once].Origin != sluice.ByOnError
}

// allowAgain makes the receipts those of charges that fit: they are in them already.
func allowAgain(receipts []sluice.Receipt) {
	for i := range receipts {
		if r := &receipts[i]; r.Origin != sluice.ByOnError {
			r.Fits = true
		}
	}
}
