//go:build !killpoints

// Package killpoint kills the agent between two steps of its protocol, so that tests see what the next agent makes of it. Only
// binaries built with the tag killpoints have that; in all others it does nothing.
package killpoint

// At does nothing in this build. With the build tag killpoints, it kills the process at a named point, for tests of crashes.
func At(string) {}
