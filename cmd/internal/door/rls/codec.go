package rls

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec of all other messages
	"google.golang.org/grpc/mem"
)

// codec reads requests and writes responses of the rate limit service without making messages of
// them, which is a third of what such a call costs. All others are left to the usual codec.
type codec struct{ encoding.CodecV2 }

// Codec returns the codec of a server that the service is registered with: see
// [google.golang.org/grpc.ForceServerCodecV2].
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ours := v.(*reply)
	if !ours {
		return c.CodecV2.Marshal(v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r.bytes)}, nil
}

// Unmarshal leaves errors in a request to the service, which answers with the right code.
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
