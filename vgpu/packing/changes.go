package packing

// changes is a log of the nodes that have changed. It reaches back far enough that reading it costs less than asking all.
type changes struct {
	log   []change
	first int64 // position of log[0]
}

// change is the version that a node got.
type change struct {
	node    int32
	version int64
}

// unseenChanges is a position before all.
const unseenChanges = -1

func (c *changes) add(i int, version int64, nodes int) {
	if len(c.log) >= 2*nodes {
		kept := copy(c.log, c.log[nodes:])
		c.log = c.log[:kept]
		c.first += int64(nodes)
	}
	c.log = append(c.log, change{int32(i), version})
}

// position is that of the next change.
func (c *changes) position() int64 { return c.first + int64(len(c.log)) }

// since lists the changes from the position on, several of one node perhaps; all says that it no longer knows.
func (c *changes) since(position int64) (list []change, all bool) {
	if position < c.first {
		return nil, true
	}
	return c.log[position-c.first:], false
}
