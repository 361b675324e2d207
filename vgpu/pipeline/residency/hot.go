package residency

import "time"

// Leave says that a hot instance of a function serves elsewhere (2 in fig. 8). The shared one ends, when it has finished
// what it runs; the requests that waited for it are returned.
func (n *Node) Leave(now time.Duration, name string) []Request {
	n.advance(now)
	f := n.functions[name]
	if f == nil || !f.exists {
		return nil
	}
	var left []Request
	for f.waiting.len() > 0 {
		left = append(left, f.waiting.pop().Request)
	}
	if f.leaving = f.running; !f.running {
		n.end(f)
	}
	return left
}

// Join says that a hot instance gave up its slices (3 in fig. 8): its data come to host memory, and the next request finds
// the function Warm. If there is a shared instance already, nothing changes: a function has one at most (FF-45).
func (n *Node) Join(now time.Duration, name string) {
	n.advance(now)
	if f := n.functions[name]; f != nil && !f.exists {
		f.exists, f.since, f.used = true, n.now, n.now
		n.host.put(f)
	}
}
