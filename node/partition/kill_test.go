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

	"github.com/gshare-dev/gshare/node/partition"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// A process of this test is an agent that opens the journal and obtains one instance. At each moment it asks the test whether to continue. The
// steps that took effect on the GPU are in a file, as the GPU outlives the agent.
const (
	agentDir      = "GSHARE_TEST_AGENT_DIR"
	agentInstance = "GSHARE_TEST_AGENT_INSTANCE"
	stepsFile     = "steps"
	journalFile   = "journal"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(agentDir); dir != "" {
		if err := agent(dir, os.Getenv(agentInstance)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// agent is the main function of the agent's process.
func agent(dir, placement string) error {
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		return err
	}
	gpu, err := fakemig.Stored(uuid, m, filepath.Join(dir, stepsFile))
	if err != nil {
		return err
	}
	p := &process{GPU: gpu, File: partition.File(filepath.Join(dir, journalFile)), ask: os.NewFile(3, "ask"), answer: os.NewFile(4, "answer")}
	manager, err := partition.Open(partition.Config{Device: p, UUID: uuid, Store: p, BootID: "boot 1"})
	if err != nil {
		return err
	}
	at, err := parsePlacement(m, placement)
	if err == nil {
		_, err = manager.Obtain(at)
	}
	return err
}

// process is the agent's GPU and journal.
type process struct {
	*fakemig.GPU
	partition.File
	ask, answer *os.File
}

// pass asks the test to continue at a moment.
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

// run runs an agent, kills it at a moment unless that is -1, and returns the number of moments. They alternate: before an operation, the agent
// is told to continue and then killed in the middle of it; after an operation, it is killed at once.
func run(t *testing.T, dir, placement string, at int) (moments int) {
	t.Helper()
	askReader, ask := pipe(t)
	answer, answerWriter := pipe(t)
	defer askReader.Close()
	defer answerWriter.Close()
	var stderr strings.Builder
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), agentDir+"="+dir, agentInstance+"="+placement), []*os.File{ask, answer}, &stderr
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
		t.Fatalf("%s: %v: %s", placement, err, stderr.String())
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

// read returns the content of both files.
func read(t *testing.T, dir string) (text string) {
	for _, name := range []string{stepsFile, journalFile} {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text += string(content) + "\n"
	}
	return text
}

// TestKill: an agent that is killed with SIGKILL at any moment leaves files with which the next agent reaches the same result.
func TestKill(t *testing.T) {
	calm := t.TempDir()
	for _, placement := range []string{"3g.40gb@4", "1g.10gb@6"} { // it overlaps the one before, which nobody holds
		before := os.DirFS(snapshot(t, os.DirFS(calm)))
		moments := run(t, calm, placement, -1)
		if moments < 8 {
			t.Fatalf("%s takes %d moments", placement, moments)
		}
		for at := range moments {
			dir := snapshot(t, before)
			run(t, dir, placement, at)
			run(t, dir, placement, -1)
			if got, want := read(t, dir), read(t, calm); got != want {
				t.Fatalf("%s, killed at moment %d: got\n%s\nwant\n%s", placement, at, got, want)
			}
		}
	}
}

// snapshot returns a copy of a directory.
func snapshot(t *testing.T, files fs.FS) string {
	dir := filepath.Join(t.TempDir(), "at")
	if err := os.CopyFS(dir, files); err != nil {
		t.Fatal(err)
	}
	return dir
}
