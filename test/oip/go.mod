// Open Inference Protocol as KServe publishes it, apart from the main module: what compiles its definitions is not gshare's business.
module github.com/gshare-dev/gshare/test/oip

go 1.26.0

require (
	github.com/bufbuild/protocompile v0.14.1
	github.com/getkin/kin-openapi v0.140.0
	github.com/gshare-dev/gshare v0.0.0
	google.golang.org/grpc v1.82.1
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

require (
	github.com/go-openapi/jsonpointer v1.0.0 // indirect
	github.com/kr/pretty v0.3.1 // indirect
	github.com/oasdiff/yaml v0.1.0 // indirect
	github.com/oasdiff/yaml3 v0.0.13 // indirect
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.2 // indirect
	golang.org/x/net v0.57.0 // indirect
	golang.org/x/sync v0.22.0 // indirect
	golang.org/x/sys v0.47.0 // indirect
	golang.org/x/text v0.40.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260526163538-3dc84a4a5aaa // indirect
)

replace github.com/gshare-dev/gshare => ../..
