package main

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"weightfs/internal/testrel"
)

// passes says whether the kernel can read files of the mount by itself.
func (m *faultMount) passes() bool { return m.status().Mount.Passthrough.On }

// passed reads a file until the kernel reads it by itself: it was fetched, verified, and looked up since. Every read must be right.
func (m *faultMount) passed(release, path string) {
	m.t.Helper()
	for _, way := range []string{"direct", "pread"} { // the first leaves nothing in the page cache, from where it would be read
		before := m.status().Mount.Passthrough.Opens
		m.until("passthrough of "+path, func() bool {
			if got := m.read(way, release, path); got != "right" {
				m.t.Fatalf("%s of %s: %s", way, path, got)
			}
			return m.status().Mount.Passthrough.Opens > before || !m.passes()
		})
	}
}

// cacheFiles are the files of the disk cache with an ending.
func (m *faultMount) cacheFiles(ext string) []string {
	m.t.Helper()
	files, err := filepath.Glob(filepath.Join(m.home, "cache/weightfs/v1/*/*"+ext))
	if err != nil || len(files) == 0 {
		m.t.Fatalf("no %s in the cache: %v", ext, err)
	}
	return files
}

// TestFaultFlipped (T24): bits that flip in files of the cache that nobody has open, verified ones that the kernel reads by itself among them,
// never reach a reader, of this mount or the next; what was flipped is fetched again.
func TestFaultFlipped(t *testing.T) {
	m := newFaultMount(t, "")
	rnd := rand.New(rand.NewPCG(11, 7))
	const shard = "model-00005-of-00006.safetensors"
	for _, remount := range []bool{false, true} {
		m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
		m.passed("kimi-mxfp4", shard)
		m.ledger.Take()
		if remount {
			m.unmount()
		}
		for _, name := range m.cacheFiles(".data") {
			if err := flipSomeBit(rnd, name); err != nil {
				t.Fatal(err)
			}
		}
		if remount {
			m.mount(plainly, "--view=release", "hf://demo/kimi-mxfp4")
		}
		for _, way := range []string{"direct", "pread"} {
			if got := m.read(way, "kimi-mxfp4", shard); got != "right" {
				t.Errorf("%s after a flip, remounted %v: %s", way, remount, got)
			}
		}
		m.unmount()
	}
}

func flipSomeBit(rnd *rand.Rand, name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var b [1]byte
	at := rnd.Int64N(info.Size())
	if _, err := f.ReadAt(b[:], at); err != nil {
		return err
	}
	b[0] ^= 1 << rnd.IntN(8)
	_, err = f.WriteAt(b[:], at)
	return err
}

// keeper is a fault-reader that has a file open and mapped, and reads it whenever it is asked to.
type keeper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func (m *faultMount) keep(release, path string) *keeper {
	m.t.Helper()
	k := &keeper{cmd: m.reader("keep", release, path, path)}
	in, err := k.cmd.StdinPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	out, err := k.cmd.StdoutPipe()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := k.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	k.in, k.out = in, bufio.NewScanner(out)
	return k
}

// read has the keeper read all of the file again.
func (k *keeper) read() string {
	fmt.Fprintln(k.in, "read")
	k.out.Scan()
	return k.out.Text()
}

// TestFaultEvicted: readers who have a file open that the kernel reads by itself go on to be right while the cache is full and evicts, and when
// its directory is removed. When they have closed it, it can be evicted, completed again and read by the kernel again.
func TestFaultEvicted(t *testing.T) {
	const kept = "model-00001-of-00010.safetensors"
	m := newFaultMount(t, "")
	m.mount(plainly, "--view=release", "--cache-size=4MB", "--memory=4MiB", "hf://demo/qwen-fp8")
	read := func(k *keeper, when string) {
		t.Helper()
		if got := k.read(); got != "right" {
			t.Errorf("%s: %s", when, got)
		}
	}
	all := func() {
		t.Helper()
		for range 2 { // the second time some are complete
			if out, err := m.reader("direct", "qwen-fp8", "*", ".").Output(); err != nil || strings.TrimSpace(string(out)) != "right" {
				t.Errorf("%s, %v", out, err)
			}
		}
	}
	m.passed("qwen-fp8", kept)
	k := m.keep("qwen-fp8", kept)
	read(k, "at first")
	all()
	all()
	read(k, "after evictions")
	if err := os.RemoveAll(filepath.Join(m.home, "cache/weightfs/v1")); err != nil {
		t.Fatal(err)
	}
	read(k, "after the cache was removed")
	all()
	read(k, "after more evictions")
	k.in.Close()
	if err := k.cmd.Wait(); err != nil {
		t.Error(err)
	}
	all()
	s := m.status()
	if evicted := s.Cache.(map[string]any)["bytesEvicted"]; evicted == 0.0 || s.Errors != 0 {
		t.Errorf("%v bytes were evicted, %d errors", evicted, s.Errors)
	}
	for i := 2; i <= 10; i++ { // so that no cell of the file is in memory: what is missing of it on disk is fetched and kept again
		if got := m.read("direct", "qwen-fp8", fmt.Sprintf("model-%05d-of-00010.safetensors", i)); got != "right" {
			t.Error(got)
		}
	}
	m.passed("qwen-fp8", kept)
	m.unmount()
}

// TestFaultFork (T30): mappings that were made before a fork are right in parent and children. Go programs cannot fork: a C program does.
func TestFaultFork(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("NOT RUN: a fork after mmap: no C compiler")
	}
	m := newFaultMount(t, "flaky")
	program := filepath.Join(m.home, "fork")
	if out, err := exec.Command(cc, "-O1", "-o", program, "testdata/fork.c").CombinedOutput(); err != nil {
		t.Fatalf("cc: %v: %s", err, out)
	}
	const shard = "model-00010-of-00010.safetensors"
	truth := filepath.Join(m.home, "truth")
	if err := os.WriteFile(truth, testrel.QwenFP8().File(shard).Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	m.mount(plainly, "--view=release", "hf://demo/qwen-fp8")
	for _, when := range []string{"fetching", "again"} {
		out, err := exec.CommandContext(t.Context(), program, filepath.Join(m.dir, shard), truth).CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != "right" || err != nil {
			t.Errorf("%s: %q, %v", when, got, err)
		}
	}
	m.unmount()
}
