package rls

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of all other messages
	"google.golang.org/grpc/mem"
)

// codec decodes requests and encodes responses of the rate limit service without protobuf messages, which would
// take a third of the time of a call. For other messages, it uses the usual codec.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec for a server that has the service: see [google.golang.org/grpc.ForceServerCodecV2].
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ours := v.(*reply)
	if !ours {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r.bytes)}, nil
}

// Unmarshal decodes a message into v. If a request is unreadable, Unmarshal stores the error in the request, so that
// the service returns the error with the right code.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	r, ours := v.(*request)
	if !ours {
		return c.CodecV2.Unmarshal(data, v)
	}
	r.fault = r.read(joined(data))
	return nil
}

func joined(data mem.BufferSlice) string {
	if len(data) == 1 {
		return string(data[0].ReadOnlyData())
	}
	return string(data.Materialize())
}
