package events

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Parse parses a list of events in the format of Dilu's simulator: one Python dict a line, with SMs as fractions of a GPU and memory in
// GiB. Times may not decrease; an instance starts once and ends later. Errors name the line.
func Parse(text string) ([]Event, error) {
	var list []Event
	running := map[string]bool{}
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		e, err := parseLine(line)
		if err == nil {
			err = checkOrder(list, running, e)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		running[e.Instance.Name] = e.Start
		list = append(list, e)
	}
	if len(list) == 0 {
		return nil, errors.New("line 1: no events")
	}
	return list, nil
}

// checkOrder returns an error if the event contradicts those before it: an earlier time, a second start, or an end without a start.
func checkOrder(before []Event, running map[string]bool, e Event) error {
	switch name := e.Instance.Name; {
	case len(before) > 0 && e.At.Before(before[len(before)-1].At):
		return fmt.Errorf("the time goes back to %s", e.At.Format(time.DateTime))
	case e.Start && running[name]:
		return fmt.Errorf("%.64q starts but runs already", name)
	case !e.Start && !running[name]:
		return fmt.Errorf("%.64q ends but does not run", name)
	}
	return nil
}
