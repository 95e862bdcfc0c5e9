package recent

// merger reads the records of all stripes, by their times.
type merger struct {
	heads []*reader // that have a record; the first is the next one
	begun bool
}

func newMerger(chunks []chunk) *merger {
	stripes := map[int][]chunk{}
	for _, c := range chunks {
		stripes[c.stripe] = append(stripes[c.stripe], c)
	}
	m := &merger{}
	for i := range maxStripes {
		if r := newReader(stripes[i]); r.next() {
			m.heads = append(m.heads, r)
		}
	}
	return m
}

// next goes to the next record, and returns its reader, or nil behind the last. The reader is not to be used after the
// following call.
func (m *merger) next() *reader {
	if m.begun && !m.heads[0].next() {
		m.heads = m.heads[1:]
	}
	if len(m.heads) == 0 {
		return nil
	}
	m.begun = true
	first := 0
	for i, r := range m.heads {
		if r.at < m.heads[first].at {
			first = i
		}
	}
	m.heads[0], m.heads[first] = m.heads[first], m.heads[0]
	return m.heads[0]
}
