package recent

// merger reads the records of all stripes in order of time.
type merger struct {
	heads []*reader // the readers that have a record; the first one has the record that next returned
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

// next returns the reader at the next record, or nil after the last record. The reader is valid until the next
// call.
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
