package rls

import (
	"bytes"
	"compress/gzip"
	"flag"
	"io"
	"os"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

var update = flag.Bool("update", false, "generate descriptors.binpb.gz from Envoy's packages")

// The service's descriptors for reflection equal those in Envoy's packages, file by file.
func TestDescriptors(t *testing.T) {
	var want descriptorpb.FileDescriptorSet
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		want.File = append(want.File, protodesc.ToFileDescriptorProto(file))
	}
	add(pb.File_envoy_service_ratelimit_v3_rls_proto)

	if *update {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(&want)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		zw, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := zw.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := zw.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile("descriptors.binpb.gz", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		described = out.Bytes()
	}

	zr, err := gzip.NewReader(bytes.NewReader(described))
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	var got descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(&got, &want) {
		t.Error("descriptors.binpb.gz differs from Envoy's packages: run go test -run TestDescriptors ./cmd/internal/door/rls -update")
	}
	if err := describe(); err != nil {
		t.Error(err)
	}
}
