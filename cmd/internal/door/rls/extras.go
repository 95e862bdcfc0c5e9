package rls

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// appendAnswer appends the fields and the body with which the gateway would answer.
func (c *call) appendAnswer(b []byte, over bool) []byte {
	all := policy.Decision{Allowed: !over}
	for i := range c.ds {
		switch p := &c.parts[i]; {
		case p.closed:
			all.Blocked = broughtRule // as a limit of 0 of the configuration does
		case !p.unasked:
			join(&all, &c.ds[i])
		}
	}
	if over {
		all.RetryAfter = max(all.RetryAfter, c.quotaWait())
	}
	var said answer.Answer
	header := make(http.Header)
	c.encoder.Encode(&said, header, &all, answer.Client{Answers: c.Engine.Policy().Answers()})
	header.Del("Content-Length") // Envoy says it of what it sends
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, v := range header[key] {
			b = appendHeader(b, key, v)
		}
	}
	return appendText(b, 5, string(said.Body()))
}

// join makes all say what d does, too.
func join(all, d *policy.Decision) {
	all.Results = append(all.Results, d.Results...)
	all.Now = max(all.Now, d.Now)
	all.Degraded = all.Degraded || d.Degraded
	if d.Allowed {
		return
	}
	all.RetryAfter = max(all.RetryAfter, d.RetryAfter)
	all.Unavailable = all.Unavailable || d.Unavailable
	if d.Blocked != "" {
		all.Blocked = d.Blocked
	}
	if d.Missing != "" {
		all.Missing = d.Missing
	}
}

// quotaWait returns the time until one of the quotas has something left; 0 if one has, and without quotas.
func (c *call) quotaWait() time.Duration {
	wait, quotas := sluice.Never, false
	for i := range c.parts {
		if p := &c.parts[i]; p.limit != nil && p.limit.quota {
			r := resultOf(&c.ds[i], p.limit)
			if r == nil || r.Allowed {
				return 0
			}
			wait, quotas = min(wait, r.RetryAfter), true
		}
	}
	if !quotas {
		return 0
	}
	return wait
}

// appendMetadata appends the request as dynamic metadata, with the metadata of the limits that it
// passed: a router reads there which quotas have something left.
func (c *call) appendMetadata(b []byte) []byte {
	fields := map[string]any{"domain": c.request.domain}
	if c.request.hits > 0 {
		fields["hitsAddend"] = float64(c.request.hits)
	}
	var descriptors []any
	own := make(map[string]any)
	for i := range c.request.descriptors {
		descriptors = append(descriptors, c.described(&c.request.descriptors[i]))
		if p := &c.parts[i]; p.limit != nil && !p.limit.unlimited && !p.over {
			more, _ := p.limit.metadata.(map[string]any)
			merge(own, more)
		}
	}
	fields["descriptors"] = descriptors
	if len(own) > 0 {
		fields["metadata"] = own
	}
	b, at := open(b, 6)
	return shut(appendStruct(b, fields), at)
}

// merge adds to all what it lacks of more, mapping by mapping. The first value of a name stays. More
// remains as it is.
func merge(all, more map[string]any) {
	for name, v := range more {
		inner, ok := v.(map[string]any)
		switch had, has := all[name]; {
		case !has && ok:
			own := make(map[string]any, len(inner))
			merge(own, inner)
			all[name] = own
		case !has:
			all[name] = v
		case ok:
			if had, ok := had.(map[string]any); ok {
				merge(had, inner)
			}
		}
	}
}

func (c *call) described(d *descriptor) map[string]any {
	var entries []any
	for _, e := range c.request.entriesOf(d) {
		entries = append(entries, e.key+"="+e.value)
	}
	fields := map[string]any{"entries": entries}
	if d.hasLimit {
		fields["limit"] = fmt.Sprintf("requests_per_unit:%d unit:%s", d.limit.requests, strings.ToUpper(unitName(d.limit.unit)))
	}
	if d.hasHits {
		fields["hitsAddend"] = float64(d.hits)
	}
	return fields
}

func unitName(u int32) string {
	if u > 0 && int(u) < len(units) {
		return units[u].name
	}
	return "unknown"
}

// appendStruct appends the fields of a google.protobuf.Struct.
func appendStruct(b []byte, fields map[string]any) []byte {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var at int
		b, at = open(b, 1)
		b = appendText(b, 1, name)
		b = shut(appendValue(b, 2, fields[name]), at)
	}
	return b
}

// appendValue appends a google.protobuf.Value.
func appendValue(b []byte, number protowire.Number, v any) []byte {
	b, at := open(b, number)
	switch v := v.(type) {
	case float64:
		b = protowire.AppendFixed64(protowire.AppendTag(b, 2, protowire.Fixed64Type), math.Float64bits(v))
	case string:
		b = protowire.AppendString(protowire.AppendTag(b, 3, protowire.BytesType), v)
	case bool:
		b = protowire.AppendVarint(protowire.AppendTag(b, 4, protowire.VarintType), protowire.EncodeBool(v))
	case map[string]any:
		var inner int
		b, inner = open(b, 5)
		b = shut(appendStruct(b, v), inner)
	case []any:
		var inner int
		b, inner = open(b, 6)
		for _, item := range v {
			b = appendValue(b, 1, item)
		}
		b = shut(b, inner)
	default: // null
		b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), 0)
	}
	return shut(b, at)
}
