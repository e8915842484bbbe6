package cache

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"
)

// killFiles is what the child and its parent read: named files, so that they are kept on disk.
func killFiles() *fakeSource {
	return newFake(fakeFile{path: "a", size: 9<<20 + 77, named: true}, fakeFile{path: "b", size: 2 << 20, named: true})
}

func killOptions(dir string) Options {
	return Options{Dir: dir, Size: 6 << 20, Memory: 2 << 20}
}

// TestKillChild is the process that TestKill kills. It writes and evicts until then and prints a line for each read.
func TestKillChild(t *testing.T) {
	dir := os.Getenv("WEIGHTFS_KILL_DIR")
	if dir == "" {
		t.Skip("only runs as a child of TestKill")
	}
	src := killFiles()
	c, err := New(killOptions(dir))
	must(t, err)
	f := c.Release(src, src.listing())
	r := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 10_000 {
		if err := gatherAtRandom(r, f, src); err != nil {
			fmt.Println("wrong:", err)
			os.Exit(1)
		}
		fmt.Println("read")
	}
}

// TestKill kills a process at random points of its work, many times on one directory: whatever it leaves, no byte that is read after is wrong,
// whether by the next process or by a second one beside it.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	src := killFiles()
	for range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", "-test.v")
		cmd.Env = append(os.Environ(), "WEIGHTFS_KILL_DIR="+dir)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		left := 5 + rand.IntN(40)
		for in := bufio.NewScanner(out); left > 0 && in.Scan(); {
			switch in.Text() {
			case "read":
				left--
			case "=== RUN   TestKillChild":
			default:
				t.Errorf("child: %s", in.Text())
			}
			if left == 20 { // beside the child: it has the lock
				readAll(t, dir, src)
			}
		}
		must(t, cmd.Process.Kill())
		cmd.Wait()
		readAll(t, dir, src)
		if t.Failed() {
			return
		}
	}
}

func readAll(t *testing.T, dir string, src *fakeSource) {
	t.Helper()
	c, err := New(killOptions(dir))
	must(t, err)
	defer closeCache(t, c)
	f := c.Release(src, src.listing())
	for i, x := range src.files {
		must(t, readBack(ctxb(), f, src, i, 0, x.size))
	}
	for _, p := range filesOf(t, dir, ".map") {
		if info, err := os.Lstat(p); err == nil && info.Size() > 1<<20 {
			t.Errorf("%s has %d bytes", p, info.Size())
		}
	}
}
