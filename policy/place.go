package policy

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// ErrNoPlace is returned for a text that is none of [Engine.Place].
var ErrNoPlace = errors.New("policy: this is no place that a decision has had")

// maxPlaces is the most places that a text may name.
const maxPlaces = 64

// Place hands the places in flight of a request over to a caller in another process, who says when it
// ends: it returns a text that names them, and this process holds them no more. They are free after
// [kernel.PermitLasts], unless [Engine.HoldPlace] is called in time, on whatever instance. The text also
// names the turn of a request that is [Decision.Queued], which this engine keeps until it comes. It
// is empty if there are neither. It has keys of the request in it, and is no secret to who has asked.
func (e *Engine) Place(d Decision) string {
	e.ended(&d) // only the other process knows when
	text := e.placeInFlight(d)
	if d.queued != nil {
		text += turnMark + e.awaited.number(d.queued)
	}
	return text
}

// turnMark is before the number of a turn.
const turnMark = "."

// cutTurn cuts the number of a turn off the text of a place.
func cutTurn(place string) (inFlight, turn string, err error) {
	inFlight, turn, queued := strings.Cut(place, turnMark)
	if !queued {
		return place, "", nil
	}
	if _, err := strconv.ParseUint(turn, turnBase, 64); err != nil {
		return "", "", ErrNoPlace
	}
	return inFlight, turn, nil
}

func (e *Engine) placeInFlight(d Decision) string {
	if len(d.held) == 0 {
		return ""
	}
	var text []byte
	for _, hold := range d.held {
		c := hold.Leave()
		text = binary.LittleEndian.AppendUint64(appendText(text, c.Key), c.Permit)
		text = binary.AppendUvarint(text, uint64(c.Plan.Capacity))
	}
	return base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint32(text, crc32.ChecksumIEEE(text)))
}

// HoldPlace has the places of a text last for another [kernel.PermitLasts], and reports whether it still
// has all of them: those that were free have been taken again, if nobody else has taken them. Call it
// well before they end. What a rule does not count any more is left out.
func (e *Engine) HoldPlace(ctx context.Context, place string) (held bool, err error) {
	place, turn, err := cutTurn(place)
	if err != nil || place == "" && turn != "" {
		return err == nil, err
	}
	receipts, err := e.takePlaces(ctx, place, 1)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(receipts, func(r sluice.Receipt) bool { return !r.Fits }), nil
}

// ReleasePlace says that the request has ended that has the places of a text: see [Engine.Release]. If its
// turn has yet to come, and this engine gave it, it gives the turn up: see [Engine.LeaveQueue].
func (e *Engine) ReleasePlace(ctx context.Context, place string) error {
	place, turn, err := cutTurn(place)
	if err != nil {
		return err
	}
	if turn != "" {
		if q := e.awaited.find(turn); q != nil {
			e.refund(ctx, q)
			e.awaited.forget(turn)
		}
		if place == "" {
			return nil
		}
	}
	_, err = e.takePlaces(ctx, place, -1)
	return err
}

func (e *Engine) takePlaces(ctx context.Context, place string, cost int64) ([]sluice.Receipt, error) {
	charges, err := e.current().places(place, cost)
	if err != nil || len(charges) == 0 {
		return nil, err
	}
	receipts := make([]sluice.Receipt, len(charges))
	if err := e.store.Take(ctx, charges, receipts); err != nil {
		return nil, err
	}
	for i := range receipts {
		if receipts[i].Origin == sluice.ByOnError {
			return nil, ErrStoreAway
		}
	}
	return receipts, nil
}

// places returns the charges of the places that a text names, of as many as there were when they were
// taken. They are of rules of the policy, so that nothing else can be taken by them.
func (p *Policy) places(place string, cost int64) (charges []sluice.Charge, err error) {
	text, err := base64.RawURLEncoding.DecodeString(place)
	end := len(text) - crc32.Size
	if err != nil || end <= 0 || crc32.ChecksumIEEE(text[:end]) != binary.LittleEndian.Uint32(text[end:]) {
		return nil, ErrNoPlace
	}
	text = text[:end]
	seen := make(map[string]bool)
	for n := 0; len(text) > 0; n++ {
		length, used := binary.Uvarint(text)
		if used <= 0 || length > uint64(len(text)-used) || uint64(len(text)-used)-length < 8 || n == maxPlaces {
			return nil, ErrNoPlace
		}
		key, number := string(text[used:used+int(length)]), binary.LittleEndian.Uint64(text[used+int(length):])
		text = text[used+int(length)+8:]
		many, used := binary.Uvarint(text)
		plan, err := sluice.NewInFlight(int64(min(many, 1<<32)))
		if used <= 0 || err != nil {
			return nil, ErrNoPlace
		}
		text = text[used:]
		name, _ := parts.CutKey(key)
		i, known := p.byName[name]
		switch {
		case number == 0 || seen[key]:
			return nil, ErrNoPlace
		case known && p.rules[i].inFlight:
			r := &p.rules[i]
			charges = append(charges, sluice.Charge{Key: key, Plan: plan, Cost: cost, Shadow: true, OnError: r.onError, Permit: number})
		}
		seen[key] = true
	}
	return charges, nil
}
