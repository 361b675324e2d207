package oip

// ModelOf returns the member "model" in the body of a request of the OpenAI API, whose paths do not name the model. It checks that the body is JSON,
// but interprets nothing else. The error is an *Error.
func ModelOf(body []byte) (string, error) {
	if err := bounds(body, len(body)); err != nil {
		return "", err
	}
	s := newScanner(body)
	var model []byte
	s.members(func(key, _ []byte) {
		if string(key) == "model" {
			model = unquote(s.stringToken())
			return
		}
		s.value()
	})
	s.end()
	if model == nil {
		s.missing("model")
	}
	if s.err != nil {
		return "", s.err
	}
	return string(model), nil
}
