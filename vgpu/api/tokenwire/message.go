package tokenwire

// Message is the body of a frame: a pointer to one of the types below.
type Message interface {
	Type() Type
	append(frame []byte) ([]byte, error)
	decode(body *reader)
	tlv(kind uint16, value *reader) bool // decodes a TLV; false if the message has none of this kind
}

// Mode is how a hook enforces a share.
type Mode uint32

// The modes of a hook.
const (
	ModeOff     Mode = 0 // passes all calls through
	ModeObserve Mode = 1 // counts launches and delays none
	ModeTime    Mode = 2 // time tokens
	ModeBlocks  Mode = 3 // block tokens
	ModeMemory  Mode = 4 // limits memory only
)

// KnowsBlocks is the capability bit of a client that supports block tokens.
const KnowsBlocks = 1

// Hello is the first frame of a client.
type Hello struct {
	HookVersion   uint32
	PID           uint32 // in the process's PID namespace; a hint
	DriverVersion uint32
	Capabilities  uint32   // bits, such as KnowsBlocks
	Session       uint64   // session before a reconnect; 0 if there was none
	Devices       []string // UUIDs of the visible devices
}

// Welcome is the answer to Hello. It carries three file descriptors for each vGPU: its server, container and client page.
type Welcome struct {
	Session uint64
	Mode    Mode
	VGPUs   []VGPU

	count int // number of vGPUs in the fixed part
}

// VGPU describes one share as its container sees it.
type VGPU struct {
	UUID        string // of the device or MIG instance
	Index       uint32 // device ordinal in the container
	Flags       uint32
	MemoryLimit uint64 // bytes
}

// Need is sent by a client whose vGPU has work and waits for a token.
type Need struct {
	VGPU         uint32 // index in Welcome
	Want         uint64 // ns of device time; 0 if unknown
	WaitingSince uint64 // CLOCK_MONOTONIC ns; a hint
}

// Bye ends a session.
type Bye struct{}

// Snapshot is sent after a reconnect, with what the process uses of a vGPU.
type Snapshot struct {
	VGPU   uint32
	Memory uint64 // bytes
	Busy   uint64 // ns settled since the process started
}

// Error is the reason for which the server closes the connection.
type Error struct {
	Code uint32 // errno
	Text string // message for logs
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
