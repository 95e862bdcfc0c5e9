package rls

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// described is the FileDescriptorSet of the service's file and the files that it imports; imported files come
// first. Envoy's Go packages have the same descriptors, but also three megabytes of unused code.
//
//go:embed descriptors.binpb.gz
var described []byte

// describe registers the service for reflection.
var describe = sync.OnceValue(func() error {
	zr, err := gzip.NewReader(bytes.NewReader(described))
	if err != nil {
		return err
	}
	data, err := io.ReadAll(zr)
	if err != nil {
		return err
	}
	var set descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(data, &set); err != nil {
		return err
	}
	for _, file := range set.GetFile() {
		// Another package of the program may have registered the file.
		if _, err := protoregistry.GlobalFiles.FindFileByPath(file.GetName()); !errors.Is(err, protoregistry.NotFound) {
			continue
		}
		made, err := protodesc.NewFile(file, protoregistry.GlobalFiles)
		if err != nil {
			return fmt.Errorf("%s: %w", file.GetName(), err)
		}
		if err := protoregistry.GlobalFiles.RegisterFile(made); err != nil {
			return fmt.Errorf("%s: %w", file.GetName(), err)
		}
	}
	return nil
})
