package rls

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// appendAnswer appends the fields and the body of the answer that the gateway would give.
func (c *call) appendAnswer(b []byte, over bool) []byte {
	all := policy.Decision{Allowed: !over}
	for i := range c.ds {
		switch p := &c.parts[i]; {
		case p.closed:
			all.Blocked = broughtRule // as for a limit of 0 in the configuration
		case !p.unasked:
			join(&all, &c.ds[i])
		}
	}
	if over {
		all.RetryAfter = max(all.RetryAfter, c.quotaWait())
	}
	var gateway answer.Answer
	header := make(http.Header)
	p := c.Engine.Policy()
	c.encoder.Encode(&gateway, header, &all, answer.Client{Fields: p.Fields(), Answers: p.Answers()})
	header.Del("Content-Length") // Envoy sets it
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, v := range header[key] {
			b = appendHeader(b, responseHeader, key, v)
		}
	}
	return appendText(b, 5, string(gateway.Body()))
}

// join adds d, the decision about a descriptor, to total, the decision about the whole request.
func join(total, d *policy.Decision) {
	total.Results = append(total.Results, d.Results...)
	total.Now = max(total.Now, d.Now)
	total.Degraded = total.Degraded || d.Degraded
	if total.Form == policy.Plain {
		total.Form, total.CallID = d.Form, d.CallID
	}
	if d.Allowed {
		return
	}
	total.RetryAfter = max(total.RetryAfter, d.RetryAfter)
	total.Unavailable = total.Unavailable || d.Unavailable
	if d.Blocked != "" {
		total.Blocked = d.Blocked
	}
	if d.Missing != "" {
		total.Missing = d.Missing
	}
}

// quotaWait returns the time until one of the quotas has units left. It returns 0 if a quota has units left now, or
// if the request has no quotas.
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

// appendMetadata appends dynamic metadata: the request, and the metadata of the limits that the request does not
// exceed. With the metadata of limits, Envoy can select a route by the quotas that have units left.
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
	message, err := structpb.NewStruct(fields)
	if err != nil { // a text in the request or the configuration is not UTF-8
		return b
	}
	b, at := open(b, 6)
	b, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, message)
	return shut(b, at)
}

// merge adds the entries of src to dst, recursively for mappings that are in both. Values in dst take precedence.
// src does not change.
func merge(dst, src map[string]any) {
	for name, v := range src {
		inner, ok := v.(map[string]any)
		switch had, has := dst[name]; {
		case !has && ok:
			own := make(map[string]any, len(inner))
			merge(own, inner)
			dst[name] = own
		case !has:
			dst[name] = v
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
