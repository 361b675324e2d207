package storewire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/store"
)

var request = Request{Version: Version, Operation: Put, Key: store.Key{Digest: store.Digest{0xab, 31: 0xcd}, Layout: "fp16"}, Bytes: 5 << 20}

// Frames of this version never change: programs in containers have libraries of other releases.
const (
	requestFrame  = "01000200040000000000500000000000" + "ab000000000000000000000000000000000000000000000000000000000000cd" + "66703136"
	responseFrame = "0100000000000000" + "0000500000000000" + "0000600000000000"
)

func TestGolden(t *testing.T) {
	frame, err := request.Encode()
	if want := requestFrame + strings.Repeat("00", 44); err != nil || hex.EncodeToString(frame) != want {
		t.Errorf("request %x, %v, want %s", frame, err, want)
	}
	if again, err := DecodeRequest(frame); err != nil || again != request {
		t.Errorf("%+v, %v", again, err)
	}
	response := Response{Version: Version, Bytes: 5 << 20, Size: 6 << 20}
	if got := hex.EncodeToString(response.Encode()); got != responseFrame {
		t.Errorf("response %s, want %s", got, responseFrame)
	}
	if again, err := DecodeResponse(response.Encode()); err != nil || again != response {
		t.Errorf("%+v, %v", again, err)
	}
}

func TestRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(frame []byte) []byte
		want   string
	}{
		"none":             {func([]byte) []byte { return nil }, "0 bytes"},
		"short":            {func(f []byte) []byte { return f[:95] }, "95 bytes"},
		"long":             {func(f []byte) []byte { return append(f, 0) }, "97 bytes"},
		"newer":            {func(f []byte) []byte { f[0] = 2; return f[:10] }, "version 2"},
		"no operation":     {func(f []byte) []byte { f[2] = 0; return f }, "operation 0"},
		"operation":        {func(f []byte) []byte { f[2] = 5; return f }, "operation 5"},
		"long layout":      {func(f []byte) []byte { f[4] = 49; return f }, "49 bytes"},
		"huge layout":      {func(f []byte) []byte { f[7] = 255; return f }, "layout with"},
		"behind layout":    {func(f []byte) []byte { f[95] = 'x'; return f }, "follows"},
		"zero in a layout": {func(f []byte) []byte { f[4] = 5; return f }, "0x0"},
		"line break":       {func(f []byte) []byte { f[48] = '\n'; return f }, "0xa"},
	} {
		t.Run(name, func(t *testing.T) {
			frame, err := request.Encode()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := DecodeRequest(test.change(frame)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	for _, layout := range []string{strings.Repeat("x", 49), "a\x00b", "ü"} {
		if _, err := (Request{Version: Version, Operation: Get, Key: store.Key{Layout: layout}}).Encode(); err == nil {
			t.Errorf("the layout %q was encoded", layout)
		}
	}
	for name, frame := range map[string]string{
		"none": "", "short": responseFrame[2:], "newer": "02" + responseFrame[2:], "reserved": "01000000ff" + responseFrame[10:],
		"negative": responseFrame[:30] + "80" + responseFrame[32:],
	} {
		b, err := hex.DecodeString(frame)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := DecodeResponse(b); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestStatuses checks that every error of the rules arrives as the same error, and nothing else does.
func TestStatuses(t *testing.T) {
	for status, want := range errorsOf {
		if got := StatusOf(want); got != status || got.Err() != want {
			t.Errorf("%v has the status %d, which is %v", want, got, got.Err())
		}
	}
	if len(errorsOf) != int(Digest-Failed) {
		t.Errorf("%d errors have a status", len(errorsOf))
	}
	if StatusOf(nil) != OK || OK.Err() != nil || StatusOf(errors.New("other")) != Failed || Failed.Err() == nil || Status(99).Err() == nil {
		t.Error("success and failure are mistaken")
	}
}

func FuzzRequest(f *testing.F) {
	frame, _ := request.Encode()
	f.Add(frame)
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, frame []byte) {
		r, err := DecodeRequest(frame)
		if err != nil {
			return
		}
		if again, err := r.Encode(); err != nil || !bytes.Equal(again, frame) {
			t.Errorf("%x is decoded as %+v, which is encoded as %x, %v", frame, r, again, err)
		}
	})
}
