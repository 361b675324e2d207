// Package tokenserver is the I/O around the rules of packages token and rckm: it tells processes that share a slice of a GPU when to
// launch.
//
// A container (or a run of gshare run) has a directory with a socket and a policy file. A process connects there, is
// identified by what the kernel says about it, and gets three shared pages for each of its vGPUs. From then on the server
// flips the state on its page, or renews the credit there where the tokens are thread blocks, and the process reports what it
// did on its own (DESIGN 5; FG-54, FG-55, FG-85; DI-50, DI-52, DI-71).
//
// The server of a slice has no goroutine: each frame and each call of its timer is one step under the slice's lock, which
// reads the clients' pages, asks the policy and writes the outcome. What a client writes is a hint: it is bounded, and a
// client that lies harms nobody but its own container.
//
// The state is in memory only, but for an empty file for each session. After a restart clients come back by themselves.
// Until they say with SNAPSHOT that they go by their new pages, or the lease of the old server has ended, they count as
// running, so that nothing is granted twice.
package tokenserver
