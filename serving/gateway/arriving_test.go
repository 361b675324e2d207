package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestAnnouncedBodies checks that clients that announce long bodies, or no length, and then send nothing, do not use up room that others
// need.
func TestAnnouncedBodies(t *testing.T) {
	const maxBody = 64 * share.MiB
	for name, headers := range map[string]string{
		"length":    fmt.Sprintf("Content-Length: %d\r\n\r\n", maxBody),
		"a byte":    fmt.Sprintf("Content-Length: %d\r\n\r\nx", maxBody),
		"in chunks": "Transfer-Encoding: chunked\r\n\r\n3000000\r\nx",
		"gRPC":      "",
	} {
		t.Run(name, func(t *testing.T) {
			start(t, Function{}, func(w *world) {
				w.replicas(echo(0), 1, 0, "a")
				const idle = 40
				var connections []net.Conn
				for range idle {
					if headers == "" {
						h := w.hostile()
						_ = h.open(1)
						_ = h.WriteData(1, false, []byte{0, 3, 255, 255, 0, 'x'})
						connections = append(connections, h.Conn)
						continue
					}
					connection, err := w.network.dial(w.Context(), "", "gateway:80")
					if err != nil {
						w.Fatal(err)
					}
					if _, err := io.WriteString(connection, "POST / HTTP/1.1\r\nHost: resnet\r\n"+headers); err != nil {
						w.Fatal(err)
					}
					connections = append(connections, connection)
				}
				synctest.Wait()
				if held := w.held(); held > idle*firstRoom {
					w.Errorf("%d bytes are reserved for %d clients that send nothing", held, idle)
				}
				body := strings.Repeat("x", 17<<20)
				if a := w.ask(w.Context(), body); a.status != 200 || a.body != body {
					w.Errorf("an honest client: %d %s, %d bytes", a.status, a.reason, len(a.body))
				}
				for _, c := range connections {
					c.Close()
				}
				synctest.Wait()
				if held := w.held(); held != 0 {
					w.Errorf("%d bytes are never released", held)
				}
				time.Sleep(bodyTimeout)
			})
		})
	}
}

// TestArriving checks that bodies of all lengths arrive completely, however they are split, and that their memory is accounted for.
func TestArriving(t *testing.T) {
	const most = 5 * firstRoom
	body := make([]byte, most)
	random := rand.New(rand.NewPCG(1, 0))
	for i := range body {
		body[i] = byte(random.Uint32())
	}
	pieces := map[string]func(io.Reader) io.Reader{
		"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "halves": iotest.HalfReader, "end with data": iotest.DataErrReader,
	}
	for name, cut := range pieces {
		for _, n := range []int{0, 1, 4096, firstRoom - 1, firstRoom, firstRoom + 1, 2*firstRoom + 1, most - 1, most} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				for reader, read := range map[string]func(*arriving) error{
					"all":    func(a *arriving) error { return a.readAll(cut(bytes.NewReader(body[:n]))) },
					"length": func(a *arriving) error { return a.read(cut(bytes.NewReader(body)), n) },
					"messages": func(a *arriving) error {
						from, at := cut(bytes.NewReader(body)), 0
						for ; at+7 <= n; at += 7 {
							if err := a.read(from, 7); err != nil {
								return err
							}
						}
						return a.read(from, n-at)
					},
				} {
					all := &bodies{}
					a := arriving{all: all, most: most, mostOfAll: most}
					if err := read(&a); err != nil || !bytes.Equal(a.bytes, body[:n]) {
						t.Errorf("%s: %d bytes, %v", reader, len(a.bytes), err)
					}
					if int(a.reserved) != cap(a.bytes) || all.bytes != a.reserved || int(a.reserved) > n+n/3+64 {
						t.Errorf("%s: %d bytes have room for %d, %d are reserved, %d of all", reader, n, cap(a.bytes), a.reserved, all.bytes)
					}
				}
			})
		}
	}
	t.Run("short", func(t *testing.T) {
		a := arriving{all: &bodies{}, most: most, mostOfAll: most}
		if err := a.read(bytes.NewReader(body[:10]), 11); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Error(err)
		}
	})
	t.Run("no room", func(t *testing.T) {
		all := &bodies{}
		a := arriving{all: all, most: most, mostOfAll: most - 1}
		from := bytes.NewReader(body)
		if err := a.read(from, most); err != nil || !a.hasNoRoom || from.Len() > 0 || all.bytes != 0 || a.bytes != nil {
			t.Errorf("%v, %d bytes are not read, %d reserved, %d kept", err, from.Len(), all.bytes, len(a.bytes))
		}
	})
}

// TestMemoryOfBodies checks that bodies never use more memory than allowed, however much of them clients send, and that all bodies that fit
// are served.
func TestMemoryOfBodies(t *testing.T) {
	const body, most = 1 << 20, 8 << 20
	f := Function{MaxBody: body, MaxBytes: most, Timeout: time.Hour}
	for name, kind := range map[string]string{"length": "Content-Length: %d\r\n\r\n", "in chunks": "Transfer-Encoding: chunked\r\n\r\n%x\r\n"} {
		t.Run(name, func(t *testing.T) {
			start(t, f, func(w *world) {
				w.replicas(echo(0), 1, 0, "a")
				memory := func() int64 {
					var s runtime.MemStats
					runtime.GC()
					runtime.ReadMemStats(&s)
					return int64(s.HeapAlloc)
				}
				begin, text := memory(), strings.Repeat("x", body-1)
				const clients = 60
				var refused atomic.Int32
				for range clients {
					c, err := w.network.dial(w.Context(), "", "gateway:80")
					if err != nil {
						w.Fatal(err)
					}
					defer c.Close()
					if _, err := io.WriteString(c, "POST / HTTP/1.1\r\nHost: resnet\r\n"+fmt.Sprintf(kind, body)+text); err != nil {
						w.Fatal(err)
					}
					go func() {
						answer := make([]byte, 12)
						if _, err := io.ReadFull(c, answer); err == nil && string(answer) == "HTTP/1.1 408" {
							refused.Add(1)
						}
					}()
				}
				synctest.Wait()
				if held := w.held(); held > most || held < most/2 {
					w.Errorf("%d bytes are reserved", held)
				}
				if used := memory() - begin; used > most+clients*64<<10 {
					w.Errorf("%d clients that send all but a byte take %d bytes", clients, used)
				}
				time.Sleep(bodyTimeout)
				synctest.Wait()
				if refused.Load() != clients || w.held() != 0 {
					w.Errorf("%d of %d are refused, %d bytes are never released", refused.Load(), clients, w.held())
				}
				if a := w.ask(w.Context(), text+"y"); a.status != 200 || a.body != text+"y" {
					w.Errorf("an honest client: %d %s", a.status, a.reason)
				}
				time.Sleep(time.Second) // the server closes connections slightly later
			})
		})
	}
}
