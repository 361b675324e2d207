//go:build !killpoints

// Package killpoint kills the agent between two steps of its protocol, so that tests see how the next agent recovers. Only binaries built
// with the tag killpoints do that; in all others the package does nothing.
package killpoint

// At does nothing in this build. With the build tag killpoints, it kills the process at a named point, for tests of crashes.
func At(string) {}
