package http1

import (
	"sync"
	"time"
)

const (
	maxIdle    = 1024             // connections to one server
	maxIdleFor = 90 * time.Second // less than servers usually keep them
	checkEvery = 10 * time.Second // for connections that servers have closed
)

// idle holds the connections that no request uses. The zero value is empty.
type idle struct {
	mu      sync.Mutex
	of      map[string][]*connection // by address, most recently used last
	checked bool                     // a call of check is scheduled
}

// take returns the most recently used idle connection to a server, or nil.
func (i *idle) take(address string, now time.Time) *connection {
	for {
		c := i.pop(address)
		if c == nil || now.Sub(c.idleSince) < maxIdleFor && c.isOpen() {
			return c
		}
		c.abort()
	}
}

func (i *idle) pop(address string) *connection {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := i.of[address]
	if len(list) == 0 {
		return nil
	}
	c := list[len(list)-1]
	list[len(list)-1] = nil
	i.of[address] = list[:len(list)-1]
	return c
}

// put adds a connection, or closes it if there are enough already.
func (i *idle) put(c *connection, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	list := i.of[c.address]
	if len(list) >= maxIdle {
		c.abort()
		return
	}
	if i.of == nil {
		i.of = map[string][]*connection{}
	}
	c.idleSince = now
	i.of[c.address] = append(list, c)
	if !i.checked {
		i.checked = true
		time.AfterFunc(checkEvery, i.check)
	}
}

// check closes the connections that have been idle for too long or that the server has closed, which nothing else would notice: nobody reads from them.
func (i *idle) check() {
	i.mu.Lock()
	defer i.mu.Unlock()
	now := time.Now()
	for address, list := range i.of {
		kept := list[:0]
		for _, c := range list {
			if now.Sub(c.idleSince) < maxIdleFor && c.isOpen() {
				kept = append(kept, c)
				continue
			}
			c.abort()
		}
		clear(list[len(kept):])
		i.of[address] = kept
		if len(kept) == 0 {
			delete(i.of, address)
		}
	}
	if i.checked = len(i.of) > 0; i.checked {
		time.AfterFunc(checkEvery, i.check)
	}
}

func (i *idle) closeAll() {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, list := range i.of {
		for _, c := range list {
			c.abort()
		}
	}
	clear(i.of)
}
