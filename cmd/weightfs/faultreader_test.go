package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"weightfs/internal/testrel"
)

// faultReader is a program of the tests: a child that reads a file of a mount in one of several ways and compares it with the release
// that the file is of. It prints "right", or what happened: an errno's name, SIGBUS, or WRONG and where.
//
//	fault-reader WAY RELEASE PATH FILE...
//	fault-reader WAY RELEASE '*' DIR...   all files of the release
func faultReader() {
	r, read := testrel.ByName(os.Args[2])[0], faultReaders[os.Args[1]]
	var err error
	for _, name := range os.Args[4:] {
		if os.Args[3] != "*" {
			err = errors.Join(err, read(name, r.File(os.Args[3])))
			continue
		}
		for i := range r.Files {
			err = errors.Join(err, read(filepath.Join(name, r.Files[i].Path), &r.Files[i]))
		}
	}
	var errno syscall.Errno
	switch {
	case err == nil:
		fmt.Println("right")
	case errors.As(err, &errno):
		fmt.Println(unix.ErrnoName(errno))
	default:
		fmt.Println(err)
	}
}

var faultReaders = map[string]func(name string, truth *testrel.File) error{
	"pread": readerWhole, "direct": readerDirect, "keep": readerKeeps, "mmap": readerMapped, "crowd": readerCrowd, "streams": readerStreams, "odd": readerOdd,
}

// same compares what stands at off.
func same(got []byte, truth *testrel.File, off int64) error {
	want := make([]byte, len(got))
	if _, err := truth.ReadAt(want, off); err != nil && err != io.EOF {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("WRONG: %s: [%d, %d)", truth.Path, off, off+int64(len(got)))
	}
	return nil
}

func readerWhole(name string, truth *testrel.File) error { return wholeFile(name, 0, truth) }

// readerDirect reads the whole file past the page cache.
func readerDirect(name string, truth *testrel.File) error {
	return wholeFile(name, unix.O_DIRECT, truth)
}

func wholeFile(name string, flag int, truth *testrel.File) error {
	f, err := os.OpenFile(name, os.O_RDONLY|flag, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err == nil && int64(len(got)) != truth.Size {
		err = fmt.Errorf("WRONG: %d of %d bytes", len(got), truth.Size)
	}
	if err != nil {
		return err
	}
	return same(got, truth, 0)
}

// readerKeeps has the file open and mapped. For every line of its input it reads all of it in both ways and says "right".
func readerKeeps(name string, truth *testrel.File) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, int(truth.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(m)
	got := make([]byte, truth.Size)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); fmt.Println("right") {
		unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED) // a hint: then bytes come from below again
		if _, err := f.ReadAt(got, 0); err != nil {
			return err
		}
		if err := errors.Join(same(got, truth, 0), same(m, truth, 0)); err != nil {
			return err
		}
	}
	return nil
}

// readerMapped touches a page in the middle of the file, which nothing has read yet.
func readerMapped(name string, truth *testrel.File) (err error) {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, int(truth.Size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	fmt.Println("mapped")
	debug.SetPanicOnFault(true)
	defer func() {
		if recover() != nil {
			err = errors.New("SIGBUS")
		}
	}()
	got := make([]byte, 1000)
	copy(got, m[truth.Size/2:])
	return same(got, truth, truth.Size/2)
}

// readerCrowd is 2,000 readers of a few bytes each on one descriptor.
func readerCrowd(name string, truth *testrel.File) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return together(2000, func(i int) error {
		rnd := rand.New(rand.NewPCG(uint64(i), 1))
		got := make([]byte, 4096)
		off := rnd.Int64N(truth.Size - int64(len(got)))
		if _, err := f.ReadAt(got, off); err != nil {
			return err
		}
		return same(got, truth, off)
	})
}

// readerStreams is 64 readers of four times 1 MiB each, far from each other.
func readerStreams(name string, truth *testrel.File) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return together(64, func(i int) error {
		got := make([]byte, 1<<20)
		off := int64(i) * (truth.Size / 64)
		for range 4 {
			if _, err := f.ReadAt(got, off); err != nil {
				return err
			}
			if err := same(got, truth, off); err != nil {
				return err
			}
			off += int64(len(got))
		}
		return nil
	})
}

// together runs n at once and returns one error of theirs.
func together(n int, fn func(i int) error) error {
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for i := range n {
		wg.Go(func() {
			if err := fn(i); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// readerOdd copies in the ways that few programs do: splice into a pipe, copy_file_range, one readv of 3 MiB or what there is.
func readerOdd(name string, truth *testrel.File) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in, out, err := os.Pipe()
	if err != nil {
		return err
	}
	off := int64(12_345)
	n, err := unix.Splice(int(f.Fd()), &off, int(out.Fd()), nil, 10_000, 0)
	if err != nil {
		return fmt.Errorf("splice: %w", err)
	}
	got := make([]byte, n)
	if _, err := io.ReadFull(in, got); err != nil {
		return err
	}
	if err := same(got, truth, 12_345); err != nil {
		return err
	}
	to, err := os.CreateTemp("", "")
	if err != nil {
		return err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	off = 777
	k, err := unix.CopyFileRange(int(f.Fd()), &off, int(to.Fd()), nil, 50_000, 0)
	switch {
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.EOPNOTSUPP): // programs then copy by hand
	case err != nil:
		return fmt.Errorf("copy_file_range: %w", err)
	default:
		got = make([]byte, k)
		if _, err := to.ReadAt(got, 0); err != nil {
			return err
		}
		if err := same(got, truth, 777); err != nil {
			return err
		}
	}
	long := make([]byte, min(3<<20, truth.Size-5))
	k, err = unix.Preadv(int(f.Fd()), [][]byte{long[:1], long[1:]}, 5)
	if err != nil || k != len(long) {
		return fmt.Errorf("preadv: %d of %d bytes: %w", k, len(long), err)
	}
	return same(long, truth, 5)
}

// limits is "limits NOFILE CGROUP PROGRAM ARGS…" as arguments of sh: a program with few descriptors, in a cgroup if one is named.
func limits(nofile int, cgroup string, args ...string) []string {
	script := []string{}
	if nofile > 0 {
		script = append(script, "ulimit -n "+strconv.Itoa(nofile))
	}
	if cgroup != "" {
		script = append(script, "echo $$ > "+cgroup+"/cgroup.procs")
	}
	return append([]string{"sh", "-c", strings.Join(append(script, `exec "$@"`), " && "), "sh"}, args...)
}
