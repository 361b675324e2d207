package planner

import (
	"maps"
	"slices"
)

// step is a change of the function that serves another one's requests: host, or itself if there is none.
type step struct{ function, host string }

func (s step) String() string {
	if s.host == "" {
		return s.function + " is to serve itself"
	}
	return s.function + " is to be served by " + s.host
}

// steps returns what may be written at once to come from the hosts that functions have now to those that are wanted, and for each function that has to
// wait, why. now has all functions of the namespace, wanted those that are to change: a function without a host has an empty one. No function of wanted
// that is a host may have one.
//
// Whichever of the steps are done, no host has a host, as nobody would serve its guests. So a function that is to serve its host has to be by itself
// first, and a guest comes to another host by way of itself: it is then that one of its own replicas, or of the new host's, is there for its requests.
func steps(now, wanted map[string]string, ready map[string]bool) (all []step, waits map[string]string) {
	serves := map[string]string{}
	for _, guest := range slices.Sorted(maps.Keys(now)) {
		serves[now[guest]] = guest
	}
	waits = map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		host := wanted[name]
		s := step{name, host}
		switch {
		case host == now[name]:
		case now[name] != "":
			all = append(all, step{name, ""})
			if host != "" {
				waits[name] = s.String() + ", after itself"
			}
		case now[host] != "":
			waits[name] = s.String() + ", which is still served by " + now[host]
		case serves[name] != "":
			waits[name] = s.String() + ", and still serves " + serves[name]
		case !ready[name] && !ready[host]:
			waits[name] = s.String() + ", once either has a replica that is ready"
		default:
			all = append(all, s)
		}
	}
	return all, waits
}
