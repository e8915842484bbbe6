package fs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// operations is what children can do. The first argument is the mount point, except for serve, which makes one.
func operations() map[string]func(args []string) error {
	return map[string]func([]string) error{
		"pread": childPread, "mmap": childMmap, "direct": childDirect, "sendfile": childSendfile, "eof": childEOF,
		"write": childWrite, "parallel": childParallel, "stat": childStat, "list": childList, "errno": childErrno,
		"hang": childHang, "serve": childServe, "copy": childCopy, "storm": childStorm, "fault": childFault, "hold": childHold,
		"keep": childKeep, "head": childHead, "block": childBlock, "comeandgo": childComeAndGo, "posix": childPosix,
		"unmount": func(args []string) error { return Unmount(args[0], false) },
	}
}

// compare checks that got is [off, off+len(got)) of the file.
func compare(name string, got []byte, off int64) error {
	exp, err := want(name, off, int64(len(got)))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, exp) {
		for i := range got {
			if got[i] != exp[i] {
				return fmt.Errorf("%s: byte %d is %#x, not %#x", name, off+int64(i), got[i], exp[i])
			}
		}
	}
	return nil
}

// childPread reads random ranges and then everything.
func childPread(args []string) error {
	for name, size := range map[string]int64{"big.bin": bigSize, "mix.bin": mixSize, "blocks/E00777.bin": blockSize} {
		f, err := os.Open(filepath.Join(args[0], name))
		if err != nil {
			return err
		}
		defer f.Close()
		rnd := rand.New(rand.NewPCG(1, 2))
		for range 60 {
			off := rnd.Int64N(size)
			buf := make([]byte, min(size-off, rnd.Int64N(300<<10)))
			if _, err := f.ReadAt(buf, off); err != nil {
				return err
			}
			if err := compare(name, buf, off); err != nil {
				return err
			}
		}
		all, err := io.ReadAll(f)
		if err != nil || int64(len(all)) != size {
			return fmt.Errorf("%s: %d of %d bytes, %v", name, len(all), size, err)
		}
		if err := compare(name, all, 0); err != nil {
			return err
		}
	}
	return nil
}

// childMmap maps a file shared and private, touches pages in random order, and writes to the private mapping.
func childMmap(args []string) error {
	f, err := os.Open(filepath.Join(args[0], "big.bin"))
	if err != nil {
		return err
	}
	for _, kind := range []struct{ prot, flags int }{
		{unix.PROT_READ, unix.MAP_SHARED}, {unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE}, {unix.PROT_READ, unix.MAP_SHARED | unix.MAP_POPULATE},
	} {
		m, err := unix.Mmap(int(f.Fd()), 0, bigSize, kind.prot, kind.flags)
		if err != nil {
			return fmt.Errorf("mmap %+v: %w", kind, err)
		}
		if kind.flags == unix.MAP_SHARED {
			if err := unix.Madvise(m, unix.MADV_RANDOM); err != nil {
				return err
			}
		}
		for _, i := range rand.New(rand.NewPCG(1, 2)).Perm(bigSize / 65536) {
			if err := compare("big.bin", m[i*65536:i*65536+100], int64(i*65536)); err != nil {
				return err
			}
		}
		if err := compare("big.bin", m[bigSize-99:], bigSize-99); err != nil {
			return err
		}
		if kind.flags == unix.MAP_PRIVATE {
			m[5000]++
		}
		if err := unix.Munmap(m); err != nil {
			return err
		}
	}
	return nil
}

func childDirect(args []string) error {
	fd, err := unix.Open(filepath.Join(args[0], "big.bin"), unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	buf := make([]byte, 5<<20)
	for _, r := range [][2]int64{{3, 100}, {0, 4096}, {12345, 5 << 20}, {bigSize - 10, 10}} {
		n, err := unix.Pread(fd, buf[:r[1]], r[0])
		if err != nil || int64(n) != r[1] {
			return fmt.Errorf("O_DIRECT read at %d: %d, %w", r[0], n, err)
		}
		if err := compare("big.bin", buf[:n], r[0]); err != nil {
			return err
		}
	}
	return nil
}

func childSendfile(args []string) error {
	f, err := os.Open(filepath.Join(args[0], "mix.bin"))
	if err != nil {
		return err
	}
	out, err := os.CreateTemp("", "")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	for sent := 0; sent < mixSize; {
		n, err := unix.Sendfile(int(out.Fd()), int(f.Fd()), nil, mixSize-sent)
		if err != nil || n == 0 {
			return fmt.Errorf("sendfile after %d: %d, %w", sent, n, err)
		}
		sent += n
	}
	got, err := os.ReadFile(out.Name())
	if err != nil {
		return err
	}
	return compare("mix.bin", got, 0)
}

// childEOF reads at and past the end, and at offsets that make arithmetic overflow.
func childEOF(args []string) error {
	f, err := os.Open(filepath.Join(args[0], "mix.bin"))
	if err != nil {
		return err
	}
	buf := make([]byte, 4096)
	for off, exp := range map[int64]int{mixSize - 1: 1, mixSize: 0, mixSize + 1: 0, 1 << 40: 0, 1<<63 - 4097: 0} {
		if n, err := unix.Pread(int(f.Fd()), buf, off); n != exp || err != nil {
			return fmt.Errorf("pread at %d: %d, %w", off, n, err)
		}
	}
	if _, err := unix.Pread(int(f.Fd()), buf, 1<<63-1); err != unix.EINVAL && err != nil {
		return fmt.Errorf("pread at 2^63-1: %w", err)
	}
	empty, err := os.ReadFile(filepath.Join(args[0], "empty"))
	if err != nil || len(empty) != 0 {
		return fmt.Errorf("the empty file: %d bytes, %w", len(empty), err)
	}
	if off, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE); off != mixSize || err != nil {
		return fmt.Errorf("SEEK_HOLE: %d, %w", off, err)
	}
	return nil
}

// childWrite tries everything that would change something.
func childWrite(args []string) error {
	file, dir := filepath.Join(args[0], "big.bin"), filepath.Join(args[0], "sub")
	for name, got := range map[string]error{
		"open for writing": openError(file, unix.O_RDWR), "create": openError(dir+"/new", unix.O_CREAT|unix.O_WRONLY),
		"truncate": unix.Truncate(file, 5), "chmod": unix.Chmod(file, 0o777), "unlink": unix.Unlink(file), "mkdir": unix.Mkdir(dir+"/d", 0o777),
		"rmdir": unix.Rmdir(dir), "rename": unix.Rename(file, dir+"/x"), "link": unix.Link(file, dir+"/y"), "symlink": unix.Symlink("a", dir+"/z"),
		"mknod": unix.Mknod(dir+"/n", unix.S_IFIFO, 0), "utimes": unix.Utimes(file, nil), "setxattr": unix.Setxattr(file, "user.a", []byte("b"), 0),
		"chown": unix.Chown(file, 1, 1),
	} {
		if got != unix.EROFS {
			return fmt.Errorf("%s: %v, not EROFS", name, got)
		}
	}
	if _, err := unix.Getxattr(file, "user.a", nil); err != unix.EOPNOTSUPP {
		return fmt.Errorf("getxattr: %v", err)
	}
	return nil
}

func openError(name string, flags int) error {
	fd, err := unix.Open(name, flags, 0o666)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// childParallel has 64 readers on one descriptor.
func childParallel(args []string) error {
	f, err := os.Open(filepath.Join(args[0], "big.bin"))
	if err != nil {
		return err
	}
	errs := make(chan error, 64)
	var wg sync.WaitGroup
	for g := range int64(64) {
		wg.Go(func() {
			buf := make([]byte, 1<<20)
			for i := range int64(5) {
				off := (g*5 + i) * (bigSize / 320)
				if _, err := f.ReadAt(buf[:100_000], off); err != nil {
					errs <- err
					return
				}
				if err := compare("big.bin", buf[:100_000], off); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// childStat prints what stat says of each path: mode links size blocks inode mtime, and of the file system.
func childStat(args []string) error {
	for _, name := range args[1:] {
		var st unix.Stat_t
		if err := unix.Lstat(filepath.Join(args[0], name), &st); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Printf("%s %o %d %d %d %d %d %d\n", name, st.Mode, st.Nlink, st.Size, st.Blocks, st.Blksize, st.Ino, st.Mtim.Sec)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(args[0], &fs); err != nil {
		return err
	}
	fmt.Printf("statfs %d %d %d %d %d\n", fs.Bsize, fs.Blocks, fs.Bfree, fs.Files, fs.Namelen)
	return nil
}

// childList lists a directory; with "stat" it also looks at every entry. It prints the number of entries.
func childList(args []string) error {
	entries, err := os.ReadDir(args[0])
	if err != nil {
		return err
	}
	for _, e := range entries {
		if len(args) > 1 {
			if info, err := e.Info(); err != nil || info.Size() != blockSize {
				return fmt.Errorf("%s: %v, %w", e.Name(), info, err)
			}
		}
	}
	fmt.Println(len(entries))
	return nil
}

// childErrno prints the error numbers of opening and of reading a file, and of what mmap makes of it.
func childErrno(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
	fmt.Printf("open %d", number(err))
	if err == nil {
		_, err = unix.Pread(fd, make([]byte, 100), 0)
		fmt.Printf(" read %d", number(err))
	}
	fmt.Println()
	return nil
}

func number(err error) int {
	var e syscall.Errno
	errors.As(err, &e)
	return int(e)
}

// childHead reads the beginning of a file, as long as a stream takes to be one.
func childHead(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.CopyN(io.Discard, f, 4<<20)
	return err
}

// childBlock reads the third MiB of a file; with "direct" past the page cache.
func childBlock(args []string) error {
	flags := unix.O_RDONLY
	if args[1] == "direct" {
		flags |= unix.O_DIRECT
	}
	fd, err := unix.Open(args[0], flags, 0)
	if err != nil {
		return err
	}
	n, err := unix.Pread(fd, make([]byte, 1<<20), 2<<20)
	if err == nil && n != 1<<20 {
		err = fmt.Errorf("%d bytes", n)
	}
	return err
}

// childHang reads a file that may never answer, and says so first. O_DIRECT makes it wait for its own request: one for read-ahead is nobody's.
func childHang(args []string) error {
	fd, err := unix.Open(args[0], unix.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	fmt.Println("reading")
	_, err = unix.Pread(fd, make([]byte, 100), 0)
	return err
}

// childHold opens a file, says so, and waits for the end of its input.
func childHold(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("open")
	_, _ = io.ReadAll(os.Stdin)
	buf := make([]byte, 1000)
	if _, err := f.ReadAt(buf, 1<<20); err != nil {
		return err
	}
	return compare(filepath.Base(args[0]), buf, 1<<20)
}

// childServe mounts the tree on the directory, says so, and serves until it is unmounted or killed.
func childServe(args []string) error {
	c := testConfig()
	c.Log = NewLog(os.Stderr, slog.LevelInfo, 0)
	f, err := New(c)
	if err != nil {
		return err
	}
	m, err := f.Mount(args[0], MountOptions{Name: "hf:org/test"})
	if err != nil {
		return err
	}
	fmt.Println("mounted")
	m.Wait()
	return nil
}

// childCopy prints a file.
func childCopy(args []string) error {
	data, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(data)
	return err
}

// childStorm maps a slow file and touches pages far from each other while a signal comes every millisecond.
func childStorm(args []string) error {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 8<<20, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	if err := unix.Madvise(m, unix.MADV_RANDOM); err != nil {
		return err
	}
	storm := make(chan os.Signal, 1)
	signal.Notify(storm, unix.SIGALRM)
	if _, err := unix.Setitimer(unix.ITIMER_REAL, unix.Itimerval{Interval: unix.Timeval{Usec: 1000}, Value: unix.Timeval{Usec: 1000}}); err != nil {
		return err
	}
	for i := range int64(10) {
		off := i * 700_000
		if err := compare("slow.bin", m[off:off+10], off); err != nil {
			return err
		}
	}
	select {
	case <-storm:
		return nil
	default:
		return errors.New("no signal ever came")
	}
}

// childFault maps a file and touches its first page; it prints what happened.
func childFault(args []string) (err error) {
	f, err := os.Open(args[0])
	if err != nil {
		return err
	}
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			fmt.Println("fault")
		}
	}()
	fmt.Println("byte", m[0])
	return nil
}
