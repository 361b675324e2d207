package tokenwire

import "encoding/binary"

const (
	tlvSession  = 1
	tlvDevice   = 2
	tlvText     = 3
	tlvVGPU     = 16
	tlvCritical = 0x8000

	vgpuSize = uuidSize + 16
)

var le = binary.LittleEndian

func appendTLV(frame []byte, kind uint16, value []byte) ([]byte, error) {
	if len(value) > MaxFrame {
		return nil, malformed("a value of %d bytes", len(value))
	}
	frame = le.AppendUint16(frame, kind)
	frame = le.AppendUint16(frame, uint16(len(value)))
	return append(frame, value...), nil
}

func (m *Hello) append(frame []byte) (_ []byte, err error) {
	for _, field := range []uint32{m.HookVersion, m.PID, m.DriverVersion, m.Capabilities} {
		frame = le.AppendUint32(frame, field)
	}
	if m.Session != 0 {
		if frame, err = appendTLV(frame, tlvSession, le.AppendUint64(nil, m.Session)); err != nil {
			return nil, err
		}
	}
	for _, device := range m.Devices {
		if frame, err = appendTLV(frame, tlvDevice, []byte(device)); err != nil {
			return nil, err
		}
	}
	return frame, nil
}

func (m *Welcome) append(frame []byte) (_ []byte, err error) {
	if len(m.VGPUs) > MaxVGPUs {
		return nil, malformed("%d vGPUs are more than %d", len(m.VGPUs), MaxVGPUs)
	}
	frame = le.AppendUint64(frame, m.Session)
	frame = le.AppendUint32(frame, uint32(m.Mode))
	frame = le.AppendUint32(frame, uint32(len(m.VGPUs)))
	for _, v := range m.VGPUs {
		if len(v.UUID) >= uuidSize {
			return nil, malformed("a UUID of %d bytes", len(v.UUID))
		}
		value := append(make([]byte, 0, vgpuSize), v.UUID...)
		value = le.AppendUint32(value[:uuidSize], v.Index)
		value = le.AppendUint32(value, v.Flags)
		value = le.AppendUint64(value, v.MemoryLimit)
		if frame, err = appendTLV(frame, tlvVGPU, value); err != nil {
			return nil, err
		}
	}
	return frame, nil
}

func (m *Need) append(frame []byte) ([]byte, error) {
	frame = le.AppendUint64(frame, uint64(m.VGPU))
	frame = le.AppendUint64(frame, m.Want)
	return le.AppendUint64(frame, m.WaitingSince), nil
}

func (*Bye) append(frame []byte) ([]byte, error) { return frame, nil }

func (m *Snapshot) append(frame []byte) ([]byte, error) {
	frame = le.AppendUint64(frame, uint64(m.VGPU))
	frame = le.AppendUint64(frame, m.Memory)
	return le.AppendUint64(frame, m.Busy), nil
}

func (m *Error) append(frame []byte) ([]byte, error) {
	frame = le.AppendUint64(frame, uint64(m.Code))
	if m.Text == "" {
		return frame, nil
	}
	return appendTLV(frame, tlvText, []byte(m.Text))
}
