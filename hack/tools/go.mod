// The linters, apart from the main module: what they require is not gshare's business.
module github.com/gshare-dev/gshare/hack/tools

go 1.26.0

tool (
	github.com/golangci/misspell/cmd/misspell
	golang.org/x/tools/cmd/deadcode
)

require (
	golang.org/x/tools v0.44.1-0.20260420230617-19499e7caabc
	honnef.co/go/tools v0.8.1
)

require (
	github.com/golangci/misspell v0.8.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20231108232855-2478ac86f678 // indirect
	golang.org/x/mod v0.35.0 // indirect
	golang.org/x/sync v0.20.0 // indirect
	golang.org/x/sys v0.43.0 // indirect
	golang.org/x/telemetry v0.0.0-20260409153401-be6f6cb8b1fa // indirect
)
