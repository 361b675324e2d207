package planner

import (
	"maps"
	"slices"
)

// step makes host serve the requests of function; without a host, the function serves itself.
type step struct{ function, host string }

func (s step) String() string {
	if s.host == "" {
		return s.function + " is to serve itself"
	}
	return s.function + " is to be served by " + s.host
}

// steps returns the changes of hosts that may be written at once, on the way from the present hosts (now) to the wanted ones, and for each function
// that has to wait, the reason. now has all functions of the namespace, wanted those that may change; the host of a function that serves itself is
// empty. A function that is a host in wanted must not have a host there.
//
// Whichever of the steps are made, no host ever has a host itself, because then nobody would serve its guests. Therefore a function must serve itself
// before it becomes a host. A guest moves to another host by first serving itself, and then waits until it or the new host has a ready replica for its
// requests.
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
