package tokenwire

// Message is the body of a frame: a pointer to one of the types below.
type Message interface {
	Type() Type
	append(frame []byte) ([]byte, error)
	decode(body *reader)
	tlv(kind uint16, value *reader) bool // whether the message knows this kind
}

// Mode says what a hook does.
type Mode uint32

// The modes of a hook.
const (
	ModeOff     Mode = 0 // pass everything through
	ModeObserve Mode = 1 // count, gate nothing
	ModeTime    Mode = 2 // time tokens
	ModeBlocks  Mode = 3 // block tokens
	ModeMemory  Mode = 4 // account and limit memory only
)

// KnowsBlocks is the capability of a client that gates itself by block tokens.
const KnowsBlocks = 1

// Hello is a client's first frame.
type Hello struct {
	HookVersion   uint32
	PID           uint32 // as the process sees itself; a hint
	DriverVersion uint32
	Capabilities  uint32   // bits, such as KnowsBlocks
	Session       uint64   // before a reconnect; 0 is none
	Devices       []string // UUIDs that the process sees
}

// Welcome answers Hello. It carries three descriptors for each vGPU: server, container and client page.
type Welcome struct {
	Session uint64
	Mode    Mode
	VGPUs   []VGPU

	count int // as decoded from the fixed part
}

// VGPU describes one share as its container sees it.
type VGPU struct {
	UUID        string // of the device or MIG instance
	Index       uint32 // device ordinal in the container
	Flags       uint32
	MemoryLimit uint64 // bytes
}

// Need says that a vGPU has work and waits for a token.
type Need struct {
	VGPU         uint32 // index in Welcome
	Want         uint64 // ns of GPU time; 0 is unknown
	WaitingSince uint64 // CLOCK_MONOTONIC ns; a hint
}

// Bye ends a session in order.
type Bye struct{}

// Snapshot says, after a reconnect, what the process holds on a vGPU.
type Snapshot struct {
	VGPU   uint32
	Memory uint64 // bytes
	Busy   uint64 // ns settled since the process started
}

// Error says why the server ends the connection.
type Error struct {
	Code uint32 // errno
	Text string // for people
}

// Type implements Message.
func (*Hello) Type() Type { return TypeHello }

// Type implements Message.
func (*Welcome) Type() Type { return TypeWelcome }

// Type implements Message.
func (*Need) Type() Type { return TypeNeed }

// Type implements Message.
func (*Bye) Type() Type { return TypeBye }

// Type implements Message.
func (*Snapshot) Type() Type { return TypeSnapshot }

// Type implements Message.
func (*Error) Type() Type { return TypeError }
