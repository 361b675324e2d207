package tokenwire

import "bytes"

// bodyReader splits the body of a frame into fields. After the first missing byte it returns zeros and sets short.
type bodyReader struct {
	rest  []byte
	short bool
}

func (r *bodyReader) take(n int) []byte {
	if len(r.rest) < n {
		r.short, r.rest = true, nil
		return make([]byte, n)
	}
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *bodyReader) u16() uint16 { return le.Uint16(r.take(2)) }
func (r *bodyReader) u32() uint32 { return le.Uint32(r.take(4)) }
func (r *bodyReader) u64() uint64 { return le.Uint64(r.take(8)) }

func (r *bodyReader) text() string { return string(r.take(len(r.rest))) }

func newMessage(t Type) Message {
	switch t {
	case TypeHello:
		return &Hello{}
	case TypeWelcome:
		return &Welcome{}
	case TypeNeed:
		return &Need{}
	case TypeBye:
		return &Bye{}
	case TypeSnapshot:
		return &Snapshot{}
	case TypeError:
		return &Error{}
	}
	return nil
}

func decodeBody(t Type, body []byte) (Message, error) {
	m := newMessage(t)
	if m == nil {
		return nil, malformed("type %d is unknown", t)
	}
	r := &bodyReader{rest: body}
	m.decode(r)
	for len(r.rest) > 0 && !r.short {
		if err := decodeTLV(m, r); err != nil {
			return nil, err
		}
	}
	if r.short {
		return nil, malformed("type %d: %d bytes of body are too few", t, len(body))
	}
	if w, ok := m.(*Welcome); ok && (w.count != len(w.VGPUs) || w.count > MaxVGPUs) {
		return nil, malformed("header claims %d vGPUs, frame has %d", w.count, len(w.VGPUs))
	}
	return m, nil
}

func decodeTLV(m Message, r *bodyReader) error {
	kind, length := r.u16(), r.u16()
	value := &bodyReader{rest: r.take(int(length))}
	switch known := m.tlv(kind&^tlvCritical, value); {
	case !known && kind&tlvCritical != 0:
		return malformed("critical TLV %d is unknown", kind&^tlvCritical)
	case known && (value.short || len(value.rest) > 0):
		return malformed("TLV %d has %d bytes", kind, length)
	}
	return nil
}

func (m *Hello) decode(r *bodyReader) {
	m.HookVersion, m.PID, m.DriverVersion, m.Capabilities = r.u32(), r.u32(), r.u32(), r.u32()
}

func (m *Hello) tlv(kind uint16, value *bodyReader) bool {
	switch kind {
	case tlvSession:
		m.Session = value.u64()
	case tlvDevice:
		m.Devices = append(m.Devices, value.text())
	default:
		return false
	}
	return true
}

func (m *Welcome) decode(r *bodyReader) {
	m.Session, m.Mode, m.count = r.u64(), Mode(r.u32()), int(r.u32())
}

func (m *Welcome) tlv(kind uint16, value *bodyReader) bool {
	if kind != tlvVGPU {
		return false
	}
	uuid, _, ended := bytes.Cut(value.take(uuidSize), []byte{0})
	value.short = value.short || !ended
	m.VGPUs = append(m.VGPUs, VGPU{UUID: string(uuid), Index: value.u32(), Flags: value.u32(), MemoryLimit: value.u64()})
	return true
}

func (m *Need) decode(r *bodyReader) {
	m.VGPU = r.u32()
	r.u32()
	m.Want, m.WaitingSince = r.u64(), r.u64()
}

func (*Need) tlv(uint16, *bodyReader) bool { return false }

func (*Bye) decode(*bodyReader)           {}
func (*Bye) tlv(uint16, *bodyReader) bool { return false }

func (m *Snapshot) decode(r *bodyReader) {
	m.VGPU = r.u32()
	r.u32()
	m.Memory, m.Busy = r.u64(), r.u64()
}

func (*Snapshot) tlv(uint16, *bodyReader) bool { return false }

func (m *Error) decode(r *bodyReader) {
	m.Code = r.u32()
	r.u32()
}

func (m *Error) tlv(kind uint16, value *bodyReader) bool {
	if kind != tlvText {
		return false
	}
	m.Text = value.text()
	return true
}
