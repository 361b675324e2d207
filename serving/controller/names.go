package controller

import "errors"

// nameSearch finds a name for a pod that nobody else's pod has. Users can make pods with any number of the names. Each try takes two requests to
// the API server, of whose writes all functions share what the controller may send. So after some names one by one the search skips more and
// more of them, and then it ends.
type nameSearch struct{ number, tried int }

// nearNames is how many names are tried one by one, and mostNames how many at all.
const nearNames, mostNames = 8, 24

// errNamesTaken does not wrap the API server's error: that one says that another try may succeed at once.
var errNamesTaken = errors.New("pods of others have the names that were tried for it")

// next goes on to another number, and reports whether the search goes on.
func (s *nameSearch) next() bool {
	s.number += 1 << max(0, s.tried-nearNames)
	s.again()
	return !s.ended()
}

// again counts a try after which the same number is tried once more.
func (s *nameSearch) again() { s.tried++ }

func (s *nameSearch) ended() bool { return s.tried >= mostNames }
