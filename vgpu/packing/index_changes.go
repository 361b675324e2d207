package packing

// changeLog is a log of the nodes that have changed. It reaches back as long as reading it costs less than evaluating all nodes.
type changeLog struct {
	log   []nodeChange
	first int64 // position of log[0]
}

// nodeChange is a new version of a node.
type nodeChange struct {
	node    int32
	version int64
}

// beforeAllChanges is a position before the first.
const beforeAllChanges = -1

// add appends a change, and drops old ones once there are two for each node.
func (c *changeLog) add(i int, version int64, nodes int) {
	if len(c.log) >= 2*nodes {
		kept := copy(c.log, c.log[nodes:])
		c.log = c.log[:kept]
		c.first += int64(nodes)
	}
	c.log = append(c.log, nodeChange{int32(i), version})
}

// position returns the position of the next change.
func (c *changeLog) position() int64 { return c.first + int64(len(c.log)) }

// since returns the changes from the position on, perhaps several of one node, or all = true if they have been dropped.
func (c *changeLog) since(position int64) (list []nodeChange, all bool) {
	if position < c.first {
		return nil, true
	}
	return c.log[position-c.first:], false
}
