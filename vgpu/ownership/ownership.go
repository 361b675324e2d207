// Package ownership decides which of several gateways serve a function, so that each replica gets its requests from one gateway only.
//
// It is rendezvous hashing: each gateway has a score for each function, and the gateways with the highest scores own it. All who know the same
// gateways come to the same result, whatever they knew before, and a gateway that comes or goes changes the owners only of the functions that
// it owns then, or has owned. A function whose requests are too many for one gateway has several owners, which divide its replicas.
package ownership

import (
	"cmp"
	"slices"
)

// Rank returns the gateways in the order in which they own a function: the first n of them if it has n owners. The first one decides how many it has.
// gateways are different names in any order, and are not changed.
func Rank(function string, gateways []string) []string {
	type scored struct {
		name  string
		score uint64
	}
	all := make([]scored, len(gateways))
	for i, name := range gateways {
		all[i] = scored{name, score(function, name)}
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.name, b.name)) })
	ranked := make([]string, len(all))
	for i, s := range all {
		ranked[i] = s.name
	}
	return ranked
}

// Divide returns which of the owners of a function each of its replicas gets its requests from. Every owner has as many replicas as another, or
// one more; if there are fewer replicas than owners, the last owners have none. owners are ranked, replicas are different names in any order.
func Divide(owners, replicas []string) map[string]string {
	owners = owners[:min(len(owners), len(replicas))]
	if len(owners) == 0 {
		return nil
	}
	type pair struct {
		owner, replica string
		score          uint64
	}
	pairs := make([]pair, 0, len(owners)*len(replicas))
	for _, owner := range owners {
		for _, replica := range replicas {
			pairs = append(pairs, pair{owner, replica, score(replica, owner)})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.replica, b.replica), cmp.Compare(a.owner, b.owner))
	})
	each, more := len(replicas)/len(owners), len(replicas)%len(owners)
	of, has := make(map[string]string, len(replicas)), map[string]int{}
	for _, p := range pairs { // the best pairs first, while the owner may have one more
		if _, taken := of[p.replica]; taken || has[p.owner] > each || has[p.owner] == each && more == 0 {
			continue
		}
		if has[p.owner] == each {
			more--
		}
		of[p.replica] = p.owner
		has[p.owner]++
	}
	return of
}

// shrinkAt is the part of what the remaining owners can do below which one is given up. Otherwise a rate near a bound would change the owners
// each second.
const shrinkAt = 0.8

// Count returns how many owners a function should have that has owners now, at least 1, for a rate of requests. One owner is to get no more than
// most of them; both are in requests per second.
func Count(owners int, rate, most float64) int {
	owners = max(owners, 1)
	for rate > float64(owners)*most {
		owners++
	}
	for owners > 1 && rate < shrinkAt*float64(owners-1)*most {
		owners--
	}
	return owners
}

// score returns the hash of two names: FNV-1a, whose bits are then mixed as in MurmurHash3, since names that differ in their last characters only
// would have scores near each other.
func score(a, b string) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range len(a) {
		h = (h ^ uint64(a[i])) * prime
	}
	h *= prime // a zero byte between them
	for i := range len(b) {
		h = (h ^ uint64(b[i])) * prime
	}
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
