package partition_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// A process of this test is an agent: it opens the journal, obtains one instance, and asks at each moment whether to go on.
// What it did to the GPU stands in a file, for the GPU outlives it.
const (
	agentDir    = "GSHARE_TEST_AGENT_DIR"
	agentWish   = "GSHARE_TEST_AGENT_WISH"
	actsFile    = "acts"
	journalFile = "journal"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentDir); dir != "" {
		if err := agent(dir, os.Getenv(agentWish)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func agent(dir, wish string) error {
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		return err
	}
	gpu, err := fakemig.Stored(uuid, m, filepath.Join(dir, actsFile))
	if err != nil {
		return err
	}
	p := &process{GPU: gpu, File: partition.File(filepath.Join(dir, journalFile)), ask: os.NewFile(3, "ask"), answer: os.NewFile(4, "answer")}
	manager, err := partition.Open(partition.Config{Device: p, UUID: uuid, Store: p, BootID: "boot 1"})
	if err != nil {
		return err
	}
	at, err := place(m, wish)
	if err == nil {
		_, err = manager.Obtain(at)
	}
	return err
}

type process struct {
	*fakemig.GPU
	partition.File
	ask, answer *os.File
}

func (p *process) pass() error {
	if _, err := p.ask.Write([]byte{1}); err != nil {
		return err
	}
	_, err := io.ReadFull(p.answer, make([]byte, 1))
	return err
}

func (p *process) Apply(s geometry.Step) error {
	return errors.Join(p.pass(), p.GPU.Apply(s), p.pass())
}

func (p *process) Save(text []byte) error { return errors.Join(p.pass(), p.File.Save(text), p.pass()) }

// run runs an agent until the moment at which it is killed; -1 is never. The moments alternate: before something it is told to
// go on and then killed, in the middle of it; after it, at once. It gives the number of moments.
func run(t *testing.T, dir, wish string, at int) (moments int) {
	t.Helper()
	askReader, ask := pipe(t)
	answer, answerWriter := pipe(t)
	defer askReader.Close()
	defer answerWriter.Close()
	var stderr strings.Builder
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), agentDir+"="+dir, agentWish+"="+wish), []*os.File{ask, answer}, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ask.Close()
	answer.Close()
	for ; ; moments++ {
		if _, err := io.ReadFull(askReader, make([]byte, 1)); err != nil {
			break // it has ended
		}
		if moments != at || moments%2 == 0 {
			answerWriter.Write([]byte{1})
		}
		if moments == at {
			cmd.Process.Kill()
			break
		}
	}
	if err := cmd.Wait(); err != nil && at < 0 {
		t.Fatalf("%s: %v: %s", wish, err, stderr.String())
	}
	return moments
}

func pipe(t *testing.T) (r, w *os.File) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return r, w
}

func read(t *testing.T, dir string) (text string) {
	for _, name := range []string{actsFile, journalFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(content) + "\n"
	}
	return text
}

// TestKill kills agents with SIGKILL at each moment; the files are real.
func TestKill(t *testing.T) {
	calm := t.TempDir()
	for _, wish := range []string{"3g.40gb@4", "1g.10gb@6"} { // in the room of the one before, as nobody holds it
		before := os.DirFS(snapshot(t, os.DirFS(calm)))
		moments := run(t, calm, wish, -1)
		if moments < 8 {
			t.Fatalf("%s takes %d moments", wish, moments)
		}
		for at := range moments {
			dir := snapshot(t, before)
			run(t, dir, wish, at)
			run(t, dir, wish, -1)
			if got, want := read(t, dir), read(t, calm); got != want {
				t.Fatalf("%s, killed at moment %d: got\n%s\nwant\n%s", wish, at, got, want)
			}
		}
	}
}

func snapshot(t *testing.T, files fs.FS) string {
	dir := filepath.Join(t.TempDir(), "at")
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}
