package memory

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/sluicehq/sluice"
)

// Seed returns the seed that determines positions and evictions in a test: SLUICE_SEED, or 1. A failing test prints
// it.
func Seed(t testing.TB) uint64 {
	seed, err := strconv.ParseUint(os.Getenv("SLUICE_SEED"), 10, 64)
	if err != nil {
		seed = 1
	}
	t.Logf("SLUICE_SEED=%d", seed)
	return seed
}

// Steps returns the length of a random history: SLUICE_STEPS, or short.
func Steps(short int) int {
	if n, err := strconv.Atoi(os.Getenv("SLUICE_STEPS")); err == nil {
		return n
	}
	return short
}

// Seeded is a Store with hashes that depend only on a seed. The hashes of a Store differ between processes.
type Seeded struct {
	*Store
	seed uint64
}

// NewSeeded returns a store for a test.
func NewSeeded(t testing.TB, c Config) *Seeded { return &Seeded{c.New(), Seed(t)} }

// NewSeededSize is [NewSize] for tests.
func NewSeededSize(t testing.TB, maxBytes int64) *Seeded {
	return NewSeeded(t, Config{MaxBytes: max(minBytes, maxBytes)})
}

func (s *Seeded) hash(c *sluice.Charge) uint64 {
	h := s.seed*0x9e3779b97f4a7c15 + 0xcbf29ce484222325
	for i := range len(c.Key) {
		h = (h ^ uint64(c.Key[i])) * 0x100000001b3
	}
	h ^= c.Plan.Fingerprint
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return s.placed(h ^ h>>31)
}

func (s *Seeded) Take(_ context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.take(own, charges, receipts)
}

func (s *Seeded) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	for i := range calls {
		c := &calls[i]
		c.Err = s.Take(ctx, c.Charges, c.Receipts)
	}
}

func (s *Seeded) TakeAt(_ context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return s.take(now, charges, receipts)
}

func (s *Seeded) take(now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if err := sluice.CheckCharges(charges, receipts); err != nil {
		return err
	}
	if len(charges) == 1 {
		c := &charges[0]
		if hash := s.hash(c); !s.takeFast(now, hash, c, &receipts[0]) {
			s.takeOne(now, hash, c, &receipts[0])
		}
		return nil
	}
	ops := make([]op, len(charges))
	for i := range charges {
		ops[i].hash = s.hash(&charges[i])
		ops[i].stripe = s.stripe(ops[i].hash)
	}
	s.takeAll(now, charges, receipts, ops, make([]int32, len(charges)))
	return nil
}
