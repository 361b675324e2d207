// Package ownership decides which of several gateways serves a function, so that each replica of the function gets its requests from only
// one gateway.
//
// It uses rendezvous hashing: each gateway has a score for each function, and the gateways with the highest scores own the function. All
// who know the same gateways come to the same result, regardless of what they knew before, and a gateway that joins or leaves changes the
// owners only of functions that it owns afterwards or owned before. A function with too many requests for one gateway has several owners,
// which divide its replicas among themselves.
package ownership

import (
	"cmp"
	"slices"
)

// Rank returns the gateways in the order in which they own a function: if it has n owners, they are the first n. The first one also decides
// how many owners there are. The names in gateways must differ; their order does not matter, and the slice is not changed.
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

// Divide returns, for each replica of a function, the owner from which it gets its requests. The numbers of replicas per owner differ by at
// most one; if there are fewer replicas than owners, the last owners get none. owners are in the order of Rank. The names in replicas must
// differ; their order does not matter.
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
	for _, p := range pairs { // best pairs first, as long as the owner may take another replica
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

// shrinkAt delays giving up an owner: it happens only once the rate is below this fraction of what the remaining owners can serve.
// Otherwise a rate near a threshold would change the owners every second.
const shrinkAt = 0.8

// Count returns how many owners a function should have, at least 1, given how many it has now and its rate of requests. Owners are added as
// long as one would get more than most; rate and most are in requests per second.
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

// score returns a hash of two names: FNV-1a, whose bits are then mixed as in MurmurHash3, since otherwise names that differ only in their
// last characters would have similar scores.
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
