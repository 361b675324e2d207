package fleet

import (
	"cmp"
	"maps"
	"slices"
)

// sorted returns the instances of the function, oldest first. The caller must not modify the slice; it does not change when instances come and go.
func (fn *function) sorted() []*instance {
	if fn.byAge == nil {
		fn.byAge = slices.SortedFunc(maps.Values(fn.instances), func(a, b *instance) int { return cmp.Compare(a.ID, b.ID) })
	}
	return fn.byAge
}

// leading returns the instances of the function that are not being replaced, oldest first.
func (fn *function) leading() []*instance {
	all := fn.sorted()
	if !slices.ContainsFunc(all, (*instance).isFollowed) {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), (*instance).isFollowed)
}

func (i *instance) isFollowed() bool { return i.follower != 0 }
