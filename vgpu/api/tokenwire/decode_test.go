package tokenwire

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func encode(t *testing.T, m Message) []byte {
	t.Helper()
	frame, err := Encode(Header{Sequence: 1}, m)
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// with appends a TLV to a frame.
func with(frame []byte, kind uint16, value string) []byte {
	longer, _ := appendTLV(append([]byte{}, frame...), kind, []byte(value)) // the value is short
	le.PutUint32(longer[12:], uint32(len(longer)-headerSize))
	return longer
}

func TestUnknownTLV(t *testing.T) {
	for name, m := range golden {
		t.Run(name, func(t *testing.T) {
			frame := encode(t, m.Message)
			if _, _, err := Decode(with(frame, 999, "news")); err != nil {
				t.Errorf("unknown TLV: %v", err)
			}
			if _, got, err := Decode(with(frame, 999|tlvCritical, "news")); !errors.Is(err, ErrMalformed) {
				t.Errorf("unknown critical TLV: %v, %v", got, err)
			}
		})
	}
}

func TestNewerMinorVersion(t *testing.T) {
	frame := encode(t, &Bye{})
	le.PutUint16(frame[6:], Minor+7)
	if h, _, err := Decode(frame); err != nil || h.Minor != Minor+7 {
		t.Errorf("got %+v, %v", h, err)
	}
}

func TestOtherMajorVersion(t *testing.T) {
	frame := encode(t, &Bye{})
	le.PutUint16(frame[4:], Major+1)
	if _, m, err := Decode(frame); !errors.Is(err, ErrVersion) {
		t.Errorf("got %v, %v", m, err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	hello := encode(t, &Hello{})
	change := func(at int, value byte) []byte {
		frame := append([]byte{}, hello...)
		frame[at] = value
		return frame
	}
	for name, frame := range map[string][]byte{
		"nothing":          {},
		"half a header":    hello[:16],
		"half a body":      hello[:len(hello)-1],
		"magic":            change(0, 0),
		"unknown type":     change(8, 99),
		"length too large": change(12, 17),
		"length too small": change(12, 15),
		"short TLV":        with(hello, tlvSession, "1234567"),
		"long TLV":         with(hello, tlvSession, "123456789"),
		"half a TLV head":  append(with(hello, tlvDevice, "GPU")[:len(hello)+3:len(hello)+3], 0)[:len(hello)+3],
		"too long":         with(hello, tlvDevice, strings.Repeat("x", MaxFrame)),
		"too many vGPUs":   manyVGPUs("\x00", MaxVGPUs+1),
		"endless UUID":     manyVGPUs("x", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if _, m, err := Decode(frame); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %v, %v", m, err)
			}
		})
	}
	if _, _, err := Decode(manyVGPUs("\x00", MaxVGPUs)); err != nil {
		t.Errorf("as many vGPUs as allowed: %v", err)
	}
}

// manyVGPUs returns a WELCOME that no server would send, whose vGPUs are filled with one byte.
func manyVGPUs(fill string, n int) []byte {
	frame, _ := Encode(Header{}, &Welcome{})
	for range n {
		frame = with(frame, tlvVGPU, strings.Repeat(fill, vgpuSize))
	}
	le.PutUint32(frame[headerSize+12:], uint32(n))
	return frame
}

func TestEncodeRefuses(t *testing.T) {
	for name, m := range map[string]Message{
		"long text":      &Error{Text: strings.Repeat("x", MaxFrame)},
		"longer text":    &Error{Text: strings.Repeat("x", 1<<17)},
		"many devices":   &Hello{Devices: []string{strings.Repeat("x", 2100), strings.Repeat("y", 2100)}},
		"long UUID":      &Welcome{VGPUs: []VGPU{{UUID: strings.Repeat("x", uuidSize)}}},
		"too many vGPUs": &Welcome{VGPUs: make([]VGPU, MaxVGPUs+1)},
	} {
		t.Run(name, func(t *testing.T) {
			if frame, err := Encode(Header{}, m); !errors.Is(err, ErrMalformed) {
				t.Errorf("got %d bytes, %v", len(frame), err)
			}
		})
	}
}

// FuzzDecode checks that every decoded frame can be encoded again, and is then the same frame without unknown TLVs.
func FuzzDecode(f *testing.F) {
	for name := range golden {
		frame, err := os.ReadFile(goldenFile(name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
		f.Add(with(frame, 999, "news"))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		h, m, err := Decode(frame)
		if err != nil {
			return
		}
		again, err := Encode(h, m)
		if err != nil {
			t.Fatalf("%+v cannot be encoded: %v", m, err)
		}
		_, same, err := Decode(again)
		if err != nil {
			t.Fatalf("%+v cannot be decoded again: %v", m, err)
		}
		once, err := Encode(h, same)
		if err != nil || !bytes.Equal(again, once) {
			t.Errorf("%x is not stable: %x", again, once)
		}
	})
}
