package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"weightfs/internal/hubtest"
)

// fioRepo is a repository with one file that fio wrote: each of its blocks has a checksum, which fio compares when it reads.
const (
	fioRepo  = "demo/fio"
	fioFile  = "pattern.safetensors" // an LFS file; that it has no header is nothing to release/
	fioBytes = "6m"
)

// engines are the ways in which fio reads.
var engines = []string{"psync", "mmap", "libaio", "io_uring"}

// writePattern has fio write its file, and tries which engines this machine has. Without fio there are none.
func (w *world) writePattern() error {
	if _, err := exec.LookPath("fio"); err != nil {
		w.absent = append(w.absent, "fio")
		return nil
	}
	name := w.path(fioFile)
	c := exec.Command("fio", "--name=write", "--filename="+name, "--size="+fioBytes, "--rw=write", "--bs=4k", "--verify=crc32c", "--do_verify=0", "--verify_state_save=0", "--ioengine=psync")
	c.Dir = w.home
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("fio: %w: %s", err, out)
	}
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	for _, e := range engines {
		if fio(name, e, 1, 0).Run() == nil {
			w.engines = append(w.engines, e)
		} else {
			w.absent = append(w.absent, "fio's "+e)
		}
	}
	w.pattern = []hubtest.File{{Path: fioFile, Size: info.Size(), Stamp: "fio", Open: func() (hubtest.Body, error) { return os.Open(name) }}}
	return nil
}

// fio is fio reading a file at random for some seconds, and comparing every block. It does not write.
func fio(name, engine string, seconds int, seed uint64) *exec.Cmd {
	c := exec.Command("fio", "--name=read", "--filename="+name, "--readonly", "--rw=randread", "--bs=4k", "--verify=crc32c", "--verify_fatal=1", "--ioengine="+engine,
		"--numjobs=2", "--iodepth=8", "--size="+fioBytes, "--time_based", fmt.Sprintf("--runtime=%d", seconds), fmt.Sprintf("--randseed=%d", seed), "--output-format=terse")
	c.Dir = os.TempDir()
	return c
}

// judgeFio says what fio found, of a file whose daemon was killed or not.
func judgeFio(said string, err error, unlucky bool) error {
	switch {
	case strings.Contains(said, "verify"):
		return fmt.Errorf("WRONG BYTES: fio: %s", said)
	case err != nil && !unlucky:
		return fmt.Errorf("fio: %w: %s", err, said)
	}
	return nil
}
