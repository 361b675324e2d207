// Command proto generates the Go code of protocol buffer definitions, so that neither protoc nor its plugins have to be installed:
//
//	go run -C hack/proto . serving/oip/inference/inference.proto
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/cmd/protoc-gen-go/internal_gengo"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// root is the path of the repository's root from this module.
const root = "../.."

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: proto FILE...; files are named from the root of the repository")
		os.Exit(2)
	}
	if err := generate(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// generate writes the code of each definition beside it.
func generate(names []string) error {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard, // keeps comments
	}
	files, err := compiler.Compile(context.Background(), names...)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: names, Parameter: proto.String("paths=source_relative")}
	for _, f := range files {
		// Encode and decode: in what the compiler makes, options are not yet of the types that Go's descriptors have.
		text, err := proto.Marshal(protodesc.ToFileDescriptorProto(f))
		if err != nil {
			return err
		}
		var descriptor descriptorpb.FileDescriptorProto
		if err := proto.Unmarshal(text, &descriptor); err != nil {
			return err
		}
		request.ProtoFile = append(request.ProtoFile, &descriptor)
	}
	plugin, err := protogen.Options{}.New(request)
	if err != nil {
		return err
	}
	for _, f := range plugin.Files {
		internal_gengo.GenerateFile(plugin, f)
	}
	response := plugin.Response()
	if response.Error != nil {
		return fmt.Errorf("%s", response.GetError())
	}
	for _, f := range response.File {
		if err := os.WriteFile(filepath.Join(root, f.GetName()), []byte(f.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
