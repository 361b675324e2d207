package simulation

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// The constants and layouts of hook/fake/wire.h.

type operation uint32

const (
	opHello       operation = 1
	opFlush       operation = 2
	opSleep       operation = 3
	opWaitWord    operation = 4
	opWaitStream  operation = 5
	opWaitDevice  operation = 6
	opWaitEvent   operation = 7
	opQueryStream operation = 8
	opQueryEvent  operation = 9
	opAnnounce    operation = 10
	opWake        operation = 11
)

func (op operation) String() string {
	names := [...]string{"none", "hello", "flush", "sleep", "wait word", "wait stream", "wait device", "wait event",
		"query stream", "query event", "announce", "wake"}
	if int(op) < len(names) {
		return names[op]
	}
	return "unknown"
}

// waits reports whether the operation blocks the thread until a time or an event. All others are answered at once, so a thread may hold a
// lock during them.
func (op operation) waits() bool { return op >= opSleep && op <= opWaitEvent }

const (
	kindKernel = 1
	kindRecord = 2
	kindAfter  = 3
)

const (
	statusDone     = 0
	statusNotReady = 1
	statusTimeout  = 2
)

const (
	requestSize = 40
	workSize    = 48
	replySize   = 32
	worksMax    = 512
)

// request is a request of a thread to the simulation. It carries all work that the process has launched and not sent before.
type request struct {
	op    operation
	batch uint64
	at    time.Duration
	a, b  uint64
	works []work
}

type work struct {
	kind, device  uint32
	stream, event uint64
	at, duration  time.Duration
	width         share.PerMille
	waves         uint32
}

type reply struct {
	now     time.Duration
	wakes   uint64
	value   uint64
	status  uint32
	virtual bool
}

var errRequest = errors.New("malformed request")

func decode(frame []byte) (request, error) {
	if len(frame) < requestSize {
		return request{}, errRequest
	}
	u32, u64 := binary.LittleEndian.Uint32, binary.LittleEndian.Uint64
	works := u32(frame[4:])
	r := request{operation(u32(frame)), u64(frame[8:]), time.Duration(u64(frame[16:])), u64(frame[24:]), u64(frame[32:]), nil}
	frame = frame[requestSize:]
	if works > worksMax || len(frame) != int(works)*workSize {
		return request{}, errRequest
	}
	for ; len(frame) > 0; frame = frame[workSize:] {
		r.works = append(r.works, work{
			kind: u32(frame), device: u32(frame[4:]), stream: u64(frame[8:]), at: time.Duration(u64(frame[16:])),
			duration: time.Duration(u64(frame[24:])), event: u64(frame[32:]), width: share.PerMille(u32(frame[40:])), waves: u32(frame[44:]),
		})
	}
	return r, nil
}

func (r reply) encode() []byte {
	frame := make([]byte, 0, replySize)
	frame = binary.LittleEndian.AppendUint64(frame, uint64(r.now))
	frame = binary.LittleEndian.AppendUint64(frame, r.wakes)
	frame = binary.LittleEndian.AppendUint64(frame, r.value)
	frame = binary.LittleEndian.AppendUint32(frame, r.status)
	virtual := uint32(0)
	if r.virtual {
		virtual = 1
	}
	return binary.LittleEndian.AppendUint32(frame, virtual)
}
