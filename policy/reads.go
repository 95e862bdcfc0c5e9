package policy

// Reads reports whether rules look at the header field of that canonical name by itself:
// as a condition, a part of a key, a cost or a tier.
func (p *Policy) Reads(name string) bool { return p.reads[name] }

// fieldsRead returns the names for [Policy.Reads].
func (p *Policy) fieldsRead() map[string]bool {
	names := make(map[string]bool)
	add := func(p *part) {
		if p.kind == headerPart {
			names[p.name] = true
		}
	}
	for _, part := range []*part{p.tierFrom, p.tierSubject} {
		if part != nil {
			add(part)
		}
	}
	for i := range p.rules {
		r := &p.rules[i]
		for k := range r.key {
			add(&r.key[k])
		}
		for _, h := range r.headers {
			names[h.name] = true
		}
		names[r.cost.header] = true
	}
	return names
}
