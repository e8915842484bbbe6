package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/internal/hubtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(readerEnv) != "" {
		os.Exit(readerMain(os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// TestSoak is a short soak, always the same plan, of a program with the race detector. "make soak" is the long one.
func TestSoak(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	if err := needFUSE(); err != nil {
		t.Skip(err)
	}
	bin := filepath.Join(t.TempDir(), "weightfs")
	if out, err := exec.Command("go", "build", "-race", "-o", bin, "weightfs/cmd/weightfs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var said bytes.Buffer
	total, err := run(t.Context(), options{lasts: 15 * time.Second, seed: 7, bin: bin, detail: true, only: []string{"dense-bf16", "kimi-mxfp4", "qwen-fp8"}}, &said)
	t.Log(total)
	if err != nil {
		t.Errorf("%v\n%s", err, said.Bytes())
	}
	if total.rounds == 0 || total.bytes == 0 || total.faults.Load() == 0 {
		t.Errorf("nothing was tried: %s", total)
	}
}

// TestProxies (T38): a round behind every real proxy that is installed.
func TestProxies(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds a proxy")
	}
	if err := needFUSE(); err != nil {
		t.Skip(err)
	}
	bin := filepath.Join(t.TempDir(), "weightfs")
	if out, err := exec.Command("go", "build", "-o", bin, "weightfs/cmd/weightfs").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, p := range proxies {
		t.Run(p.name, func(t *testing.T) {
			if _, err := exec.LookPath(p.program); err != nil {
				t.Skipf("NOT RUN: a hub behind %s: it is not installed", p.name)
			}
			var said bytes.Buffer
			total, err := run(t.Context(), options{lasts: time.Minute, rounds: 2, seed: 4, bin: bin, detail: true, proxy: p.name, only: []string{"dense-bf16", "qwen-fp8"}}, &said)
			if err != nil || total.behind != 2 || total.bytes == 0 {
				t.Errorf("%s: %v\n%s", total, err, said.Bytes())
			}
		})
	}
}

// TestFioFinds: fio tells a block that is not what it wrote, and so do we.
func TestFioFinds(t *testing.T) {
	w := &world{home: t.TempDir()}
	if err := w.writePattern(); err != nil {
		t.Fatal(err)
	}
	if w.pattern == nil {
		t.Skip("NOT RUN: fio is not installed")
	}
	name := w.path(fioFile)
	if out, err := fio(name, "psync", 1, 1).CombinedOutput(); judgeFio(string(out), err, false) != nil {
		t.Errorf("%v: %s", err, out)
	}
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for i := 100; i < len(b); i += 100_000 {
		b[i] ^= 1
	}
	write(t, name, b)
	if out, err := fio(name, "psync", 1, 1).CombinedOutput(); judgeFio(string(out), err, true) == nil {
		t.Errorf("flipped blocks are right: %v: %s", err, out)
	}
}

// TestDraw: a plan is a function of the seed, its faults can be read, and everything is drawn.
func TestDraw(t *testing.T) {
	events, caches, behind, reads := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	sealed, required := 0, 0
	for n := range 300 {
		p := draw(5, n)
		if !reflect.DeepEqual(p, draw(5, n)) {
			t.Fatalf("round %d is drawn in two ways", n)
		}
		if _, err := hubtest.ParsePlan(p.faults); err != nil {
			t.Errorf("%s: %v", p, err)
		}
		for _, e := range p.events {
			events[e.what] = true
		}
		caches[p.cache], behind[p.proxy], reads[p.fio] = true, true, true
		if p.sealed {
			sealed++
		}
		if p.require {
			required++
		}
		if p.require && (!p.sealed || p.has(lose)) {
			t.Errorf("%s: seals are lost", p)
		}
	}
	if len(events) != 9 || len(caches) != 5 || len(behind) != 1+len(proxies) || len(reads) != 1+len(engines) || sealed == 0 || required == 0 || required == sealed {
		t.Errorf("drawn: %v, %v, %v, %v, %d, %d", events, caches, behind, reads, sealed, required)
	}
	if len(gentle) < 5 || len(gentle) == len(transient) {
		t.Errorf("%d gentle faults of %d", len(gentle), len(transient))
	}
}

// TestReaderFindsEverything: a reader tells wrong bytes, wrong sizes, missing files and faults.
func TestReaderFindsEverything(t *testing.T) {
	truth := make([]byte, 300_000)
	for i := range truth {
		truth[i] = byte(i * 7)
	}
	// The file system of the test may want O_DIRECT aligned.
	aligned := slices.DeleteFunc(slices.Clone(operations), func(o operation) bool { return o.name == "O_DIRECT" })
	flipped := bytes.Clone(truth)
	for i := 0; i < len(flipped); i += 100 {
		flipped[i] ^= 1
	}
	for name, c := range map[string]struct {
		there         []byte // in place of the truth
		wrong, failed bool
	}{
		"right": {there: truth}, "flipped": {there: flipped, wrong: true}, "short": {there: truth[:299_000], wrong: true}, "missing": {failed: true},
	} {
		r := &reader{task: task{Mount: t.TempDir(), Truth: t.TempDir(), Lasts: 200 * time.Millisecond}, rnd: seeded(1), ways: aligned}
		write(t, filepath.Join(r.Truth, "f"), truth)
		if c.there != nil {
			write(t, filepath.Join(r.Mount, "f"), c.there)
		}
		if err := r.find(); err != nil {
			t.Fatal(err)
		}
		r.read()
		if (len(r.Wrong) > 0) != c.wrong || (len(r.Failed) > 0) != c.failed || r.Ops == 0 {
			t.Errorf("%s: %+v", name, r.outcome)
		}
	}
}

// TestFaultIsCounted: a page beyond a file that became shorter is a fault, which a reader survives.
func TestFaultIsCounted(t *testing.T) {
	r := &reader{task: task{Mount: t.TempDir(), Truth: t.TempDir()}, rnd: seeded(1)}
	for _, dir := range []string{r.Mount, r.Truth} {
		write(t, filepath.Join(dir, "f"), make([]byte, 1<<20))
	}
	r.guard()
	err := r.try("f", func(r *reader, p *pair) error {
		return r.mapped(p, 1, 1, func(m []byte) error {
			if err := os.Truncate(filepath.Join(r.Mount, "f"), 0); err != nil {
				return err
			}
			return r.touch(p, m)
		})
	})
	if err != errFault || r.Faults != 1 {
		t.Errorf("%v, %d faults", err, r.Faults)
	}
}

// TestRunFails: a run that cannot do anything is no success.
func TestRunFails(t *testing.T) {
	if err := needFUSE(); err != nil {
		t.Skip(err)
	}
	if _, err := run(context.Background(), options{lasts: time.Second, bin: "/nonexistent/weightfs"}, &bytes.Buffer{}); err == nil {
		t.Error("a run without a program succeeds")
	}
}

// TestDamageOfAFullDisk: bytes of a hole cannot be changed when the disk is full, which is no failure of the run.
func TestDamageOfAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("soak", dir, "tmpfs", 0, "mode=0700,size=64k"); err != nil {
		t.Skipf("no small disk: %v", err)
	}
	defer unix.Unmount(dir, 0)
	if err := fillDisk(filepath.Join(dir, "other")); err != nil {
		t.Fatal(err)
	}
	s := &scene{rnd: rand.New(rand.NewPCG(1, 2))}
	for range 20 {
		name := filepath.Join(dir, "sparse")
		write(t, name, nil)
		if err := os.Truncate(name, 1<<20); err != nil {
			t.Fatal(err)
		}
		if err := s.hurt(name); err != nil {
			t.Fatal(err)
		}
	}
}

func write(t *testing.T, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o666); err != nil {
		t.Fatal(err)
	}
}
