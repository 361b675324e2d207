package oip

// copied is the length below which a piece of another message is copied: a segment of its own would cost more.
const copied = 1024

// splicer builds a message from new text and pieces of other messages, which it does not copy if they are long.
type splicer struct {
	text   []byte
	pieces []piece
	from   int // start of the text that is not in a piece yet
	length int // total length of the pieces
}

// piece is a part of the splicer's text or, if bytes is not nil, of another message.
type piece struct {
	from, to int
	bytes    []byte
}

func (s *splicer) add(text string) { s.text = append(s.text, text...) }

func (s *splicer) splice(data []byte) {
	if len(data) < copied {
		s.text = append(s.text, data...)
		return
	}
	s.flush()
	s.pieces = append(s.pieces, piece{bytes: data})
	s.length += len(data)
}

func (s *splicer) flush() {
	if s.from < len(s.text) {
		s.pieces = append(s.pieces, piece{from: s.from, to: len(s.text)})
		s.length += len(s.text) - s.from
		s.from = len(s.text)
	}
}

// size returns the length of the message so far.
func (s *splicer) size() int { return s.length + len(s.text) - s.from }

// segments returns the message.
func (s *splicer) segments() [][]byte {
	s.flush()
	segments := make([][]byte, len(s.pieces))
	for i, p := range s.pieces {
		if segments[i] = p.bytes; p.bytes == nil {
			segments[i] = s.text[p.from:p.to:p.to]
		}
	}
	return segments
}
