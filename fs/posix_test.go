package fs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPosix is what of go-fuse's posixtest a read-only file system can be asked, under the names it has there.
func TestPosix(t *testing.T) {
	_, m := mounted(t, testConfig())
	for _, c := range posixCases() {
		t.Run(c.name, func(t *testing.T) { child(t, "posix", m.Dir(), c.name) })
	}
}

type posixCase struct {
	name string
	do   func(dir string) error
}

func posixCases() []posixCase {
	return []posixCase{
		{"DirSeek", posixDirSeek}, {"ReadDirConsistency", posixReadDir}, {"FdLeak", posixFdLeak}, {"LseekEnxioCheck", posixLseek},
		{"OpenAt", posixOpenAt}, {"ParallelFileOpen", posixParallel}, {"FcntlFlockLocksFile", posixLocks}, {"XAttr", posixXattr}, {"FileBasic", posixFile},
	}
}

func childPosix(args []string) error {
	i := slices.IndexFunc(posixCases(), func(c posixCase) bool { return c.name == args[1] })
	return posixCases()[i].do(args[0])
}

// posixNames reads a directory from where it stands.
func posixNames(f *os.File, most int) ([]string, error) {
	names, err := f.Readdirnames(most)
	if err == io.EOF {
		err = nil
	}
	return names, err
}

// posixDirSeek reads a directory on from every place that it was at: the kernel's own offsets are taken again.
func posixDirSeek(dir string) error {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var at []int64
	var rest [][]string
	for {
		off, err := unix.Seek(fd, 0, io.SeekCurrent)
		if err != nil {
			return err
		}
		names, err := direntNames(fd)
		if err != nil {
			return err
		}
		if len(names) == 0 {
			break
		}
		at, rest = append(at, off), append(rest, names)
	}
	if len(at) < 5 {
		return fmt.Errorf("%d places only", len(at))
	}
	for i := len(at) - 1; i >= 0; i-- {
		if _, err := unix.Seek(fd, at[i], io.SeekStart); err != nil {
			return err
		}
		if names, err := direntNames(fd); err != nil || !slices.Equal(names, rest[i]) {
			return fmt.Errorf("at %d there is %q, not %q: %v", at[i], names, rest[i], err)
		}
	}
	return nil
}

// direntNames reads an entry or two.
func direntNames(fd int) (names []string, err error) {
	buf := make([]byte, 64)
	n, err := unix.ReadDirent(fd, buf)
	for buf = buf[:max(n, 0)]; len(buf) > 0; {
		k, _, some := unix.ParseDirent(buf, 1, nil)
		names, buf = append(names, some...), buf[k:]
	}
	return names, err
}

// posixReadDir lists a large directory by several at once, in pieces: no name twice, none missing.
func posixReadDir(dir string) error {
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() {
			f, err := os.Open(filepath.Join(dir, "blocks"))
			if err != nil {
				errs[i] = err
				return
			}
			defer f.Close()
			seen := map[string]bool{}
			for {
				names, err := posixNames(f, 1000+i)
				if err != nil {
					errs[i] = err
					return
				}
				if len(names) == 0 {
					break
				}
				for _, n := range names {
					if seen[n] {
						errs[i] = fmt.Errorf("%s twice", n)
					}
					seen[n] = true
				}
			}
			if len(seen) != blocks {
				errs[i] = fmt.Errorf("%d names of %d", len(seen), blocks)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// posixFdLeak opens and closes files and directories more often than descriptors could be held.
func posixFdLeak(dir string) error {
	for i := range 3000 {
		name := []string{"big.bin", "blocks", "mix.bin", "sub/a"}[i%4]
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("open %d: %w", i, err)
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

// posixLseek: the whole file is data, its end is a hole, and beyond is nothing.
func posixLseek(dir string) error {
	f, err := os.Open(filepath.Join(dir, "mix.bin"))
	if err != nil {
		return err
	}
	defer f.Close()
	for _, c := range []struct {
		off    int64
		whence int
		want   int64
		err    error
	}{
		{0, unix.SEEK_DATA, 0, nil}, {5000, unix.SEEK_DATA, 5000, nil}, {0, unix.SEEK_HOLE, mixSize, nil}, {mixSize - 1, unix.SEEK_HOLE, mixSize, nil},
		{mixSize, unix.SEEK_DATA, 0, unix.ENXIO}, {mixSize, unix.SEEK_HOLE, 0, unix.ENXIO}, {0, io.SeekEnd, mixSize, nil}, {-1, io.SeekStart, 0, unix.EINVAL},
	} {
		if got, err := unix.Seek(int(f.Fd()), c.off, c.whence); err != c.err || err == nil && got != c.want {
			return fmt.Errorf("lseek %d whence %d: %d, %v", c.off, c.whence, got, err)
		}
	}
	return nil
}

// posixOpenAt opens below a directory that is open, also by paths that climb and follow nothing.
func posixOpenAt(dir string) error {
	d, err := unix.Open(filepath.Join(dir, "sub"), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(d)
	for name, want := range map[string]error{"a": nil, "../sub/a": nil, "a/": unix.ENOTDIR, "a/b": unix.ENOTDIR, "none": unix.ENOENT, "dir": nil} {
		fd, err := unix.Openat(d, name, unix.O_RDONLY|unix.O_NOFOLLOW, 0)
		if err != want {
			return fmt.Errorf("openat %s: %v, want %v", name, err, want)
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	return nil
}

// posixParallel opens, reads and closes one file by many at once.
func posixParallel(dir string) error {
	var wg sync.WaitGroup
	errs := make([]error, 50)
	for i := range errs {
		wg.Go(func() {
			b, err := os.ReadFile(filepath.Join(dir, "mix.bin"))
			if err == nil {
				err = compare("mix.bin", b, 0)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// posixLocks: locks work as on any file, between descriptors of one file.
func posixLocks(dir string) error {
	var fds [2]int
	for i := range fds {
		fd, err := unix.Open(filepath.Join(dir, "mix.bin"), unix.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fds[i] = fd
	}
	if err := unix.Flock(fds[0], unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("flock: %w", err)
	}
	if err := unix.Flock(fds[1], unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
		return fmt.Errorf("a second exclusive lock: %v", err)
	}
	lock := unix.Flock_t{Type: unix.F_RDLCK, Len: 10}
	if err := unix.FcntlFlock(uintptr(fds[1]), unix.F_SETLK, &lock); err != nil {
		return fmt.Errorf("fcntl: %w", err)
	}
	return nil
}

// posixXattr: there are no extended attributes, and asking for one is no other error.
func posixXattr(dir string) error {
	name := filepath.Join(dir, "mix.bin")
	if _, err := unix.Getxattr(name, "user.none", make([]byte, 10)); err != unix.ENODATA && err != unix.EOPNOTSUPP {
		return fmt.Errorf("getxattr: %v", err)
	}
	if n, err := unix.Listxattr(name, make([]byte, 100)); n > 0 || err != nil && err != unix.EOPNOTSUPP {
		return fmt.Errorf("listxattr: %d, %v", n, err)
	}
	return nil
}

// posixFile: stat of a path and of a descriptor are the same, reading on ends at the end, and times are not changed by it.
func posixFile(dir string) error {
	f, err := os.Open(filepath.Join(dir, "mix.bin"))
	if err != nil {
		return err
	}
	defer f.Close()
	var before, open unix.Stat_t
	if err := errors.Join(unix.Stat(f.Name(), &before), unix.Fstat(int(f.Fd()), &open)); err != nil || before != open {
		return fmt.Errorf("%+v and %+v, %v", before, open, err)
	}
	b, err := io.ReadAll(f)
	if err == nil {
		err = compare("mix.bin", b, 0)
	}
	if n, end := f.Read(make([]byte, 1)); err != nil || int64(len(b)) != mixSize || n != 0 || end != io.EOF {
		return fmt.Errorf("%d bytes, then %d, %v, %v", len(b), n, end, err)
	}
	var after unix.Stat_t
	if err := unix.Stat(f.Name(), &after); err != nil || after != before {
		return fmt.Errorf("reading changed %+v to %+v, %v", before, after, err)
	}
	return nil
}
