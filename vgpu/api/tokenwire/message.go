package tokenwire

// Message is the body of a frame: a pointer to Hello, Welcome, Need, Bye, Snapshot or Error.
type Message interface {
	Type() Type
	append(frame []byte) ([]byte, error)
	decode(body *bodyReader)
	tlv(kind uint16, value *bodyReader) bool // decodes a TLV; false if the message has none of this kind
}

// Mode is how the hook in a process enforces the process's share.
type Mode uint32

// The modes of a hook.
const (
	ModeOff     Mode = 0 // passes all calls through
	ModeObserve Mode = 1 // counts launches and delays none
	ModeTime    Mode = 2 // time tokens
	ModeBlocks  Mode = 3 // block tokens
	ModeMemory  Mode = 4 // limits memory only
)

// CapabilityBlocks is the capability bit of a client that supports tokens counted in thread blocks.
const CapabilityBlocks = 1

// Hello is the first frame that a client, the hook in a process, sends to the token server.
type Hello struct {
	HookVersion   uint32
	PID           uint32 // in the process's PID namespace; a hint
	DriverVersion uint32
	Capabilities  uint32   // bits, such as KnowsBlocks
	Session       uint64   // session before a reconnect; 0 if there was none
	Devices       []string // UUIDs of the visible devices
}

// Welcome is the token server's answer to Hello. It carries three file descriptors for each vGPU: its server, container and client page.
type Welcome struct {
	Session uint64
	Mode    Mode
	VGPUs   []VGPU

	count int // number of vGPUs in the fixed part
}

// VGPU describes one share as the processes of its container see it.
type VGPU struct {
	UUID        string // of the device or MIG instance
	Index       uint32 // device ordinal in the container
	Flags       uint32
	MemoryLimit uint64 // bytes
}

// Need is the frame by which a client requests a token for a vGPU that has work.
type Need struct {
	VGPU         uint32 // index in Welcome
	Want         uint64 // ns of device time; 0 if unknown
	WaitingSince uint64 // CLOCK_MONOTONIC ns; a hint
}

// Bye is the frame by which a client ends its session.
type Bye struct{}

// Snapshot is the frame by which a client reports, after a reconnect, what its process uses of a vGPU.
type Snapshot struct {
	VGPU   uint32
	Memory uint64 // bytes
	Busy   uint64 // ns settled since the process started
}

// Error is the frame in which the token server states why it closes the connection.
type Error struct {
	Code uint32 // errno
	Text string // message for logs
}

// Type returns TypeHello.
func (*Hello) Type() Type { return TypeHello }

// Type returns TypeWelcome.
func (*Welcome) Type() Type { return TypeWelcome }

// Type returns TypeNeed.
func (*Need) Type() Type { return TypeNeed }

// Type returns TypeBye.
func (*Bye) Type() Type { return TypeBye }

// Type returns TypeSnapshot.
func (*Snapshot) Type() Type { return TypeSnapshot }

// Type returns TypeError.
func (*Error) Type() Type { return TypeError }
