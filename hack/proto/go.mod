// The compiler of protocol buffers, apart from the main module: what it requires is not gshare's business.
module github.com/gshare-dev/gshare/hack/proto

go 1.26.0

require (
	github.com/bufbuild/protocompile v0.14.1
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af
)

require golang.org/x/sync v0.20.0 // indirect
