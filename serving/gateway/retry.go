package gateway

// retry puts items whose replica has failed back into the queue, if the retry budget covers all of them. cost is what each of them takes from the
// budget, 0 or 1.
func (f *function) retry(cost float64, items ...*item) bool {
	f.mu.Lock()
	items = stayed(items)
	cost *= float64(len(items))
	if f.retries < cost || len(f.replicas) == 0 && !f.config.Hold.InTime {
		f.mu.Unlock()
		return false
	}
	f.retries -= cost
	for _, it := range items {
		it.of.measure(func(m *metrics) { m.retried(it.of.name) })
	}
	left := f.again(items)
	f.mu.Unlock()
	f.sendHome(left)
	return true
}

// putBack puts items that were left out of a batch back into the queue.
func (f *function) putBack(items []*item) {
	f.mu.Lock()
	left := f.again(stayed(items))
	f.mu.Unlock()
	f.sendHome(left)
}

// again puts items that a replica had back into the queue, and returns those of guests that have left: f may have another model by now.
func (f *function) again(items []*item) (left []*item) {
	for _, it := range items {
		if !it.of.place.allows(f) {
			left = append(left, it)
			continue
		}
		f.lastID++
		it.request.ID, it.batch = f.lastID, nil
		it.of.count((*statistics).land)
		f.add(it)
	}
	f.dispatch()
	return left
}
