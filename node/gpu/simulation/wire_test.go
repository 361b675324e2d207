package simulation

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"testing"
	"time"
)

// encode encodes a request as hook/fake/sim.c does.
func encode(r request) []byte {
	var b bytes.Buffer
	for _, field := range []any{uint32(r.op), uint32(len(r.works)), r.batch, uint64(r.at), r.a, r.b} {
		_ = binary.Write(&b, binary.LittleEndian, field) // a buffer takes everything
	}
	for _, w := range r.works {
		for _, field := range []any{w.kind, w.device, w.stream, uint64(w.at), uint64(w.duration), w.event, uint32(w.width), w.waves} {
			_ = binary.Write(&b, binary.LittleEndian, field)
		}
	}
	return b.Bytes()
}

func TestDecode(t *testing.T) {
	want := request{opSleep, 3, time.Second, 4, 5, []work{
		{kindKernel, 1, 2, 0, time.Minute, time.Hour, 500, 3}, {kindRecord, 0, 7, 8, 9, 0, 0, 0},
	}}
	frame := encode(want)
	got, err := decode(frame)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("decoded %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range [][]byte{nil, frame[:requestSize-1], frame[:len(frame)-1], append(frame, 0)} {
		if _, err := decode(bad); err == nil {
			t.Errorf("a frame of %d bytes was taken", len(bad))
		}
	}
	if n := len(reply{}.encode()); n != replySize {
		t.Errorf("a reply has %d bytes, want %d", n, replySize)
	}
}

// FuzzDecode checks that every frame is either refused or decoded to its content.
func FuzzDecode(f *testing.F) {
	f.Add(encode(request{op: opHello, a: 1000}))
	f.Add(encode(request{op: opFlush, works: make([]work, 2)}))
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := decode(frame)
		if err != nil {
			return
		}
		again, err := decode(encode(r))
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}
