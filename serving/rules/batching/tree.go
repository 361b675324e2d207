package batching

// tree holds requests ordered by deadline, then ID, and can count those before a given one. It is a treap whose nodes hold the size of
// their subtree; all operations take time logarithmic in the number of requests. The priorities are a hash of the IDs, so equal requests
// give equal trees.
type tree struct {
	root *node
	free *node // nodes to reuse, linked by right
}

type node struct {
	Request
	priority    uint64
	size        int
	left, right *node
}

// mix is the finalizer of SplitMix64, a hash without collisions.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func earlier(a, b *Request) bool {
	if order := a.Deadline.Compare(b.Deadline); order != 0 {
		return order < 0
	}
	return a.ID < b.ID
}

func (n *node) count() int {
	if n == nil {
		return 0
	}
	return n.size
}

func (n *node) update() *node {
	n.size = n.left.count() + n.right.count() + 1
	return n
}

// len returns the number of requests.
func (t *tree) len() int { return t.root.count() }

// before returns the number of requests that come before r.
func (t *tree) before(r *Request) int {
	count := 0
	for n := t.root; n != nil; {
		if earlier(&n.Request, r) {
			count += n.left.count() + 1
			n = n.right
		} else {
			n = n.left
		}
	}
	return count
}

// first returns the first request. The tree must not be empty.
func (t *tree) first() *Request {
	n := t.root
	for n.left != nil {
		n = n.left
	}
	return &n.Request
}

// from returns the first request that does not come before r, or nil.
func (t *tree) from(r *Request) (found *Request) {
	for n := t.root; n != nil; {
		if earlier(&n.Request, r) {
			n = n.right
		} else {
			found, n = &n.Request, n.left
		}
	}
	return found
}

// add adds a request that is not in the tree.
func (t *tree) add(r Request) {
	n := t.free
	if n == nil {
		n = &node{}
	} else {
		t.free = n.right
	}
	*n = node{Request: r, priority: mix(r.ID), size: 1}
	t.root = insert(t.root, n)
}

func insert(root, n *node) *node {
	if root == nil {
		return n
	}
	if n.priority > root.priority {
		n.left, n.right = split(root, &n.Request)
		return n.update()
	}
	if earlier(&n.Request, &root.Request) {
		root.left = insert(root.left, n)
	} else {
		root.right = insert(root.right, n)
	}
	return root.update()
}

// split divides a subtree into the requests before r and the others.
func split(root *node, r *Request) (before, after *node) {
	if root == nil {
		return nil, nil
	}
	if earlier(&root.Request, r) {
		root.right, after = split(root.right, r)
		return root.update(), after
	}
	before, root.left = split(root.left, r)
	return before, root.update()
}

// join joins two subtrees. All requests of a must come before those of b.
func join(a, b *node) *node {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case a.priority > b.priority:
		a.right = join(a.right, b)
		return a.update()
	}
	b.left = join(a, b.left)
	return b.update()
}

// remove removes a request and reports whether it was in the tree.
func (t *tree) remove(r *Request) bool {
	root, removed := cut(t.root, r)
	if t.root = root; removed == nil {
		return false
	}
	*removed = node{right: t.free}
	t.free = removed
	return true
}

// cut returns the subtree without the given request, and the node that held it.
func cut(root *node, r *Request) (rest, removed *node) {
	switch {
	case root == nil:
		return nil, nil
	case earlier(r, &root.Request):
		root.left, removed = cut(root.left, r)
	case earlier(&root.Request, r):
		root.right, removed = cut(root.right, r)
	default:
		return join(root.left, root.right), root
	}
	return root.update(), removed
}

// pop removes and returns the first request. The tree must not be empty.
func (t *tree) pop() Request {
	r := *t.first()
	t.remove(&r)
	return r
}
