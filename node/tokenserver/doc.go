// Package tokenserver serves tokens to the processes that share a slice of a GPU. It connects the rules of packages token and rckm
// to sockets and shared memory.
//
// A container (or a run of gshare run) has a directory with a socket and a policy file. A process connects to the socket, is
// identified by its kernel credentials, and receives three shared pages for each of its vGPUs. From then on the server sets the
// state on the process's page, or, where tokens are thread blocks, renews the credit there. The process reports its use on a page
// of its own.
//
// A slice has no goroutine of its own. Each frame and each timer call is one step under the slice's lock: it reads the clients'
// pages, consults the token policy and writes the policy's decisions. Values that a client writes are hints: they are bounded, and
// a client that lies affects no container but its own.
//
// State is kept in memory, except for one empty file for each session. After a restart, clients reconnect by themselves. Until
// they confirm their new pages with SNAPSHOT, or the old server's lease ends, they count as running, so that nothing is granted
// twice.
package tokenserver
