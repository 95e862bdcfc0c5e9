package rls

import (
	"math"
	"strings"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// official returns a request as the official message.
func official(r *request) *pb.RateLimitRequest {
	out := &pb.RateLimitRequest{Domain: r.domain, HitsAddend: r.hits}
	for i := range r.descriptors {
		d := &r.descriptors[i]
		o := &common.RateLimitDescriptor{IsNegativeHits: d.negative}
		for _, e := range r.entriesOf(d) {
			o.Entries = append(o.Entries, &common.RateLimitDescriptor_Entry{Key: e.key, Value: e.value})
		}
		if d.hasLimit {
			o.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: d.limit.requests, Unit: typev3.RateLimitUnit(d.limit.unit)}
			if d.limit.hasMultiplier {
				o.Limit.UnitMultiplier = wrapperspb.UInt32(d.limit.multiplier)
			}
		}
		if d.hasHits {
			o.HitsAddend = wrapperspb.UInt64(d.hits)
		}
		out.Descriptors = append(out.Descriptors, o)
	}
	return out
}

func seeds() (all [][]byte) {
	full := &pb.RateLimitRequest{Domain: "edge", HitsAddend: math.MaxUint32, Descriptors: []*common.RateLimitDescriptor{
		{
			Entries: []*common.RateLimitDescriptor_Entry{{Key: "user", Value: "á"}, {Key: "path"}},
			Limit:   &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 5, Unit: 6, UnitMultiplier: wrapperspb.UInt32(3)}, IsNegativeHits: true,
		},
		{HitsAddend: wrapperspb.UInt64(math.MaxUint64), Limit: &common.RateLimitDescriptor_RateLimitOverride{Unit: -1}},
		{HitsAddend: wrapperspb.UInt64(0)},
	}}
	message, err := proto.Marshal(full)
	if err != nil {
		panic(err)
	}
	all = append(all, nil, message, message[:len(message)-1],
		append(append([]byte{}, message...), message...), // lists are concatenated, and single fields are overwritten
		[]byte("\x0a\x01\xff"),                           // not UTF-8
		[]byte("\x08\x01\x12\x00\x1a\x00"),               // wrong wire types
		[]byte("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), []byte("\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
		[]byte("\x2b\x2c"), []byte("\x2b"), []byte("\x2c"), []byte("\x00"), []byte("\x07"), // groups and invalid tags
		[]byte("\x12\x0c\x12\x02\x08\x01\x12\x02\x10\x02\x1a\x00\x20\x02"), // a limit in two parts
		[]byte("\x12\x06\x1a\x02\x08\x05\x1a\x00"),
		[]byte("\xfa\xff\xff\xff\x0f\x00"), []byte("\xfa\xff\xff\xff\x1f\x00"), []byte("\x8a\x80\x80\x80\x80\x80\x80\x80\x80\x00\x00"),
		[]byte("\x11\x00\x00\x00\x00\x00\x00\x00\x00\x15\x00\x00\x00\x00"),
	)
	return all
}

// For any bytes, the decoder of requests returns the same as the official decoder, and fails if that fails. Requests
// beyond our limits are an exception.
func FuzzRequest(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r request
		want := new(pb.RateLimitRequest)
		err, wantErr := r.read(string(data)), proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, want)
		if grpcstatus.Code(err) == codes.ResourceExhausted {
			if len(r.descriptors) > maxDescriptors || len(r.entries) > maxDescriptors*maxEntries {
				t.Errorf("%d descriptors and %d entries were read", len(r.descriptors), len(r.entries))
			}
			return
		}
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, and the official decoder returns %v", data, err, wantErr)
		}
		if err == nil && !proto.Equal(official(&r), want) {
			t.Fatalf("%q:\n%v, and the official decoder returns\n%v", data, official(&r), want)
		}
		_ = r.check() // terminates without a panic
	})
}

// The official decoder reads every encoded response as intended.
func FuzzResponse(f *testing.F) {
	f.Add(uint32(5), int32(3), "name", uint32(2), uint32(7), int64(60), true, "Retry-After", "17", "body")
	f.Add(uint32(0), int32(0), "", uint32(0), uint32(math.MaxUint32), int64(-1), false, "", "", "")
	f.Add(uint32(math.MaxUint32), int32(7), strings.Repeat("n", 200), uint32(1), uint32(0), int64(0), true, strings.Repeat("h", 130), strings.Repeat("v", 20_000), strings.Repeat("b", 70_000))
	f.Fuzz(func(t *testing.T, requests uint32, unit int32, name string, multiplier, remaining uint32, reset int64, limited bool, key, value, body string) {
		name, key, value = strings.ToValidUTF8(name, "?"), strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(value, "?")
		s := status{codeOver, currentLimit{name, requests, unit & 7, multiplier}, limited, remaining, reset}
		b := appendNumber(nil, 1, codeOver)
		b = s.append(b)
		b = appendHeader(b, responseHeader, key, value)
		b = appendText(b, 5, body)

		want := &pb.RateLimitResponse{OverallCode: 2, RawBody: []byte(body)}
		one := &pb.RateLimitResponse_DescriptorStatus{Code: 2, LimitRemaining: remaining}
		if limited {
			one.CurrentLimit = &pb.RateLimitResponse_RateLimit{Name: name, RequestsPerUnit: requests, Unit: pb.RateLimitResponse_RateLimit_Unit(unit & 7)}
			if multiplier > 1 {
				one.CurrentLimit.UnitMultiplier = wrapperspb.UInt32(multiplier)
			}
		}
		if reset >= 0 {
			one.DurationUntilReset = &durationpb.Duration{Seconds: reset}
		}
		want.Statuses = append(want.Statuses, one)
		// The header is compared separately, after decoding.
		got := new(pb.RateLimitResponse)
		if err := proto.Unmarshal(b, got); err != nil {
			t.Fatal(err)
		}
		if h := got.GetResponseHeadersToAdd(); len(h) != 1 || h[0].GetKey() != key || h[0].GetValue() != value {
			t.Errorf("header: %v", h)
		}
		got.ResponseHeadersToAdd = nil
		if len(body) == 0 {
			want.RawBody = got.RawBody
		}
		if !proto.Equal(got, want) {
			t.Errorf("got\n%v, want\n%v", got, want)
		}
	})
}

// Reading a message with many unknown fields takes few allocations.
func TestUnknownFields(t *testing.T) {
	var m []byte
	for range 20_000 {
		m = protowire.AppendFixed64(protowire.AppendTag(m, 9, protowire.Fixed64Type), 1)
	}
	var r request
	text := string(m)
	if n := testing.AllocsPerRun(10, func() {
		if err := r.read(text); err != nil {
			t.Error(err)
		}
	}); n > 10 {
		t.Errorf("%v allocations", n)
	}
}

// The attribute names of a descriptor's entries are distinct, and none is reserved.
func FuzzAttributes(f *testing.F) {
	f.Add("a", "a", "a#2", "b")
	f.Add("domain", "domain#2", "limit", "descriptor")
	f.Add("a#1", "a", "a", "a#1#1")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		entries := []entry{{key: a}, {key: b}, {key: c}, {key: d}}
		seen := make(map[string]bool)
		for i, e := range entries {
			name := attributeName(e.key, countKeys(entries[:i], e.key))
			if seen[name] || reserved(name) {
				t.Errorf("%q: the name %q occurs twice or is reserved", entries, name)
			}
			seen[name] = true
		}
	})
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "a", true}, {"a*", "a", true}, {"a*", "ab", true}, {"a*", "ba", false}, {"*a", "ba", true}, {"*a", "ab", false},
		{"a*a", "a", false}, {"a*a", "aa", true}, {"a*b*c", "abc", true}, {"a*b*c", "aXbYc", true}, {"a*b*c", "acb", false}, {"*b*", "abc", true},
		{"*b*", "ac", false}, {"a**b", "ab", true}, {"*ab*b", "ab", false}, {"*ab*b", "abb", true},
	} {
		if got := matches(c.pattern, c.text); got != c.want {
			t.Errorf("matches(%q, %q) = %v", c.pattern, c.text, got)
		}
	}
}
