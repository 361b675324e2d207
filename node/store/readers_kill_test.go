package store

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/store/client"
	"github.com/gshare-dev/gshare/node/store/cuda"
	rules "github.com/gshare-dev/gshare/vgpu/store"
)

// helperVariable says what a helper does once it has mapped the memory: "dies", or "store dies", after which it goes on.
const helperVariable = "GSHARE_TEST_STORE_HELPER"

// runDigest is the store's helper.
func runDigest(_ *steps, arguments []string) error {
	if end := os.Getenv(helperVariable); end != "" {
		device, err := cuda.Open()
		if err != nil {
			return err
		}
		if _, err := device.Map(os.NewFile(helperFile, "device memory"), weightsSize, false); err != nil {
			return err
		}
		victim := os.Getpid()
		if end == "store dies" {
			victim = os.Getppid()
		}
		_ = syscall.Kill(victim, syscall.SIGKILL)
		select {} // until the kernel ends it, too
	}
	digest, err := RunHelper(arguments)
	fmt.Println(digest)
	return err
}

// runRead maps weights that the store has, and says so. It lets go of them when it is sent a line. It may be killed between any two of these steps.
func runRead(s *steps, arguments []string) error {
	device, err := cuda.Open()
	if err != nil {
		return err
	}
	s.pass()
	c, err := client.Dial(context.Background(), arguments[0])
	if err != nil {
		return err
	}
	s.pass()
	w, err := c.Get(rules.Key{Digest: sha256.Sum256(weights())})
	if err != nil {
		return err
	}
	s.pass()
	m, err := device.Map(w.Memory, w.Size, false)
	if err != nil {
		return err
	}
	s.pass()
	if err := w.Memory.Close(); err != nil {
		return err
	}
	s.pass()
	fmt.Println("ready")
	if !bufio.NewScanner(os.Stdin).Scan() {
		return errors.New("the test has ended")
	}
	s.pass()
	if err := device.Unmap(m); err != nil {
		return err
	}
	s.pass()
	if err := c.Close(); err != nil {
		return err
	}
	s.pass()
	fmt.Println("released")
	return nil
}

// TestReaderKilled kills a program at each step of its reading and releasing, while another has the weights. The store then knows of the other alone,
// whose weights are unchanged; nothing is left once that one has ended as well.
func TestReaderKilled(t *testing.T) {
	m := newMachine(t)
	store, ready := m.start(t, "store", 0)
	if !ready {
		t.Fatal(store.errors)
	}
	other, ready := m.start(t, "load", 0)
	if !ready {
		t.Fatal(other.errors)
	}
	readers := 0 // that were killed while they had a lease
	for step, survived := 1, false; !survived; step++ {
		reader, mapped := m.start(t, "read", step)
		if mapped {
			if got := store.ask("users"); got != "2" {
				t.Errorf("step %d: %s users while it reads", step, got)
			}
			survived = reader.ask("release") == "released"
		}
		reader.kill()
		if status := reader.ProcessState.Sys().(syscall.WaitStatus); !survived && status.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v, %s", step, reader.ProcessState, reader.errors)
		}
		if !survived && mapped {
			readers++
		}
		for store.ask("users") != "1" { // until it has seen the end of the connection
			time.Sleep(time.Millisecond)
		}
		m.awaitUsed(t, weightsSize, fmt.Sprintf("step %d", step))
		if answer := other.ask("read"); answer != "same" {
			t.Fatalf("step %d: %s %s", step, answer, other.errors)
		}
		if step > 20 {
			t.Fatal("the reader never runs through")
		}
	}
	if readers != 3 {
		t.Errorf("%d readers were killed while they let go, want 3", readers)
	}
	other.kill()
	for store.ask("evict") != "0" {
		time.Sleep(time.Millisecond)
	}
	m.awaitUsed(t, 0, "evicted")
}

// TestHelperKilled kills the process that verifies a digest, and the store while that process has the memory mapped. The weights are not committed,
// and no memory stays with a helper whose store has gone.
func TestHelperKilled(t *testing.T) {
	for _, end := range []string{"dies", "store dies"} {
		t.Run(end, func(t *testing.T) {
			m := newMachine(t)
			t.Setenv(helperVariable, end)
			store, ready := m.start(t, "store", 0)
			if !ready {
				t.Fatal(store.errors)
			}
			writer, loaded := m.start(t, "load", 0)
			writer.kill()
			if loaded {
				t.Error("the weights were committed")
			}
			want := "0"
			if end == "store dies" {
				want = ""
			}
			if answer := store.ask("used"); answer != want {
				t.Errorf("the store says %q, want %q", answer, want)
			}
			if want == "" {
				store.kill() // it has ended; the driver counts the memory of one that nobody has waited for
			}
			m.awaitUsed(t, 0, end)
		})
	}
}
