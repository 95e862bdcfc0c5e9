package telemetry

// ring has the values of the latest steps of one length. The index of a step is its number modulo the number of
// steps. A ring takes no memory before the first step.
type ring[T any] struct {
	last  int64
	cells []T
}

// cell returns the value of a step, which must be kept.
func (r *ring[T]) cell(n int64) *T { return &r.cells[uint64(n)%uint64(len(r.cells))] }

// first returns the earliest step that is kept.
func (r *ring[T]) first() int64 { return r.last - int64(len(r.cells)) + 1 }

// has reports whether a step is kept.
func (r *ring[T]) has(n int64) bool { return len(r.cells) > 0 && n >= r.first() && n <= r.last }

// since returns the given step number, or that of the nearest step that is kept.
func (r *ring[T]) since(from int64) int64 { return max(min(from, r.last), r.first()) }

// sinceUsed returns the first step, from the given one on, with a value that is not zero, or the step after the
// latest.
func sinceUsed[T comparable](r *ring[T], from int64) int64 {
	from = max(from, r.first())
	for from <= r.last && *r.cell(from) == *new(T) {
		from++
	}
	return from
}

// move makes n the latest step of a ring with that many steps. It does nothing if a later step is known, because
// the clock of an instance may step back.
func (r *ring[T]) move(n int64, steps int) {
	if r.cells == nil {
		r.cells, r.last = make([]T, steps), n
	}
	if n-r.last >= int64(steps) {
		clear(r.cells)
		r.last = n
	}
	for r.last < n {
		r.last++
		*r.cell(r.last) = *new(T)
	}
}
