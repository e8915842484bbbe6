package cache

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"weightfs/sources"
)

// disk is the cache directory as this process sees it. One process at a time writes and evicts in a directory: the one that has its lock
// file locked. Any other reads there and keeps what it fetches in a directory of its own below, which goes when it ends.
type disk struct {
	dir    string
	own    *store // what this process writes; nil if it can write nowhere
	shared *store // what another process writes; nil if own is the directory itself
	log    *slog.Logger
	most   int64        // blobs that are read and written: each holds descriptors until the cache closes
	blobs  atomic.Int64 // those that were wanted
}

// DefaultDir is where the cache is kept unless a user says otherwise: $XDG_CACHE_HOME/weightfs, or the system's equivalent.
func DefaultDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for a cache: %w (XDG_CACHE_HOME=%q, HOME=%q)", err, os.Getenv("XDG_CACHE_HOME"), os.Getenv("HOME"))
	}
	return filepath.Join(base, "weightfs"), nil
}

// Is reports whether a directory was ever used as a cache. It makes nothing there.
func Is(dir string) (bool, error) {
	info, err := os.Stat(filepath.Join(dir, version))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	return err == nil && info.IsDir(), err
}

func openDisk(o Options, stats *counters) (*disk, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil && !errors.Is(err, syscall.EROFS) {
		return nil, fmt.Errorf("make the cache directory: %w", err)
	}
	root, err := openPrivate(o.Dir)
	if err != nil {
		return nil, err
	}
	lock, err := lockIn(root)
	d := &disk{dir: o.Dir, log: o.Log}
	switch {
	case err == nil:
		removeLeftOver(root)
		removeOlder(root)
		root.Mkdir(version, 0o700) // so that it can be told from any other directory; without it no blob can be made either, which says why
		d.own, err = newStore(root, lock, o, stats)
	case errors.Is(err, unix.EWOULDBLOCK):
		d.shared, _ = newStore(root, nil, o, stats)
		d.own, err = privateStore(root, o, stats)
	case errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.EACCES):
		o.Log.Warn("the cache directory cannot be written: nothing will be added to it", "dir", o.Dir, "err", err)
		d.shared, err = newStore(root, nil, o, stats)
	default:
		root.Close()
		err = fmt.Errorf("lock the cache directory %s: %w", o.Dir, err)
	}
	if err != nil {
		return nil, err
	}
	d.most = mostBlobs(descriptors(), d.own != nil && d.shared != nil)
	return d, nil
}

// descriptors is how many files and connections this process may have open.
func descriptors() int64 {
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil {
		return math.MaxInt32
	}
	return int64(min(l.Cur, math.MaxInt32))
}

// mostBlobs leaves connections, local files and what is open for a moment half of the descriptors, or 128. A blob has three files, and two more where
// another process writes it as well.
func mostBlobs(descriptors int64, two bool) int64 {
	each := int64(3)
	if two {
		each = 5
	}
	return max(1, (descriptors-min(descriptors/2, 128))/each)
}

// openPrivate opens a directory that must be the user's own and that nobody else can write to.
func openPrivate(dir string) (*os.Root, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open the cache directory: %w", err)
	}
	info, err := root.Stat(".")
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("open the cache directory: %w", err)
	}
	st := info.Sys().(*syscall.Stat_t)
	if int(st.Uid) != os.Geteuid() {
		root.Close()
		return nil, fmt.Errorf("the cache directory %s belongs to user %d, not to you: name another with --cache-dir", dir, st.Uid)
	}
	if st.Mode&0o022 != 0 {
		root.Close()
		return nil, fmt.Errorf("others can write to the cache directory %s (mode %03o): chmod go-w it, or name another with --cache-dir", dir, st.Mode&0o777)
	}
	if mounts, err := os.Open("/proc/self/mountinfo"); err == nil {
		defer mounts.Close()
		if at := ownMount(mounts, st.Dev); at != "" {
			root.Close()
			return nil, fmt.Errorf("the cache directory %s lies in the weightfs mount %s: name another with --cache-dir", dir, at)
		}
	}
	return root, nil
}

// ownMount is where a weightfs is mounted that has the device number, or "".
func ownMount(mounts io.Reader, dev uint64) string {
	found, err := mountinfo.GetMountsFromReader(mounts, func(m *mountinfo.Info) (skip, stop bool) {
		own := m.FSType == "fuse.weightfs" && unix.Mkdev(uint32(m.Major), uint32(m.Minor)) == dev
		return !own, own
	})
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0].Mountpoint
}

// lockIn takes the lock of a directory; the error is EWOULDBLOCK if another process has it. Closing the file gives it up.
func lockIn(root *os.Root) (*os.File, error) {
	f, err := root.OpenFile("lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// privateDirs holds the directories of processes that could not get the lock.
const privateDirs = "private"

func privateStore(root *os.Root, o Options, stats *counters) (*store, error) {
	name := filepath.Join(privateDirs, rand.Text())
	if err := root.MkdirAll(name, 0o700); err != nil {
		return nil, fmt.Errorf("make a cache directory of this process: %w", err)
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open the cache directory of this process: %w", err)
	}
	lock, err := lockIn(sub)
	if err != nil {
		sub.Close()
		return nil, fmt.Errorf("lock the cache directory of this process: %w", err)
	}
	s, err := newStore(sub, lock, o, stats)
	if err == nil {
		s.temporary = func() error { return os.RemoveAll(filepath.Join(o.Dir, name)) }
	}
	return s, err
}

// privateName is what rand.Text makes: a directory of any other name is somebody else's.
var privateName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// removeLeftOver removes private directories of processes that are gone.
func removeLeftOver(root *os.Root) {
	f, err := root.OpenFile(privateDirs, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		if !privateName.MatchString(name) {
			continue
		}
		name = filepath.Join(privateDirs, name)
		sub, err := root.OpenRoot(name)
		if err != nil {
			continue
		}
		if lock, err := lockIn(sub); err == nil {
			root.RemoveAll(name)
			lock.Close()
		}
		sub.Close()
	}
}

// removeOlder removes the blobs that older formats kept: nothing reads them any more. What a newer one keeps is neither read nor touched, and a
// file that is not named as those of a blob is somebody else's.
func removeOlder(root *os.Root) {
	f, err := root.Open(".")
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	own, _ := formatOf(version)
	for _, name := range names {
		if n, ok := formatOf(name); ok && n < own {
			removeBlobs(root, name)
		}
	}
}

// removeBlobs removes the files of blobs below a directory, <2 hex>/<64 hex of key>.<ending>, and the directories that are empty then.
func removeBlobs(root *os.Root, dir string) {
	dirs := []string{}
	fs.WalkDir(root.FS(), dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case e.IsDir():
			dirs = append(dirs, name)
		default:
			if _, ok := keyOf(strings.TrimSuffix(e.Name(), path.Ext(name))); ok {
				root.Remove(name)
			}
		}
		return nil
	})
	for _, name := range slices.Backward(dirs) {
		root.Remove(name) // fails if something is left
	}
}

// formatOf is the number of the format that a directory of this name is in.
func formatOf(name string) (n uint64, ok bool) {
	digits, ok := strings.CutPrefix(name, "v")
	n, err := strconv.ParseUint(digits, 10, 32)
	return n, ok && err == nil
}

// open is the places on disk where the cells of a blob are, the one that is written first. None without a directory, and none for more blobs
// than there are descriptors for. They are open until the cache closes.
func (d *disk) open(id sources.ID, size int64) []*diskBlob {
	if d == nil || id == (sources.ID{}) {
		return nil
	}
	if n := d.blobs.Add(1); n > d.most {
		if n == d.most+1 {
			d.log.Warn("few descriptors: what more files are read is not kept on disk (ulimit -n)", "files", d.most)
		}
		return nil
	}
	var out []*diskBlob
	for _, s := range []*store{d.own, d.shared} {
		if s == nil {
			continue
		}
		if b := s.open(id, size); b != nil {
			out = append(out, b)
		}
	}
	return out
}

// loadObject is a small thing that was kept whole under a key, or nil; it is in the memory of buf where that is enough.
func (d *disk) loadObject(key sources.ID, limit int64, buf []byte) []byte {
	if d == nil || key == (sources.ID{}) {
		return nil
	}
	for _, s := range []*store{d.own, d.shared} {
		if s == nil {
			continue
		}
		if b := s.load(key, limit, buf); b != nil {
			s.stats.diskBytes.Add(int64(len(b)))
			return b
		}
	}
	return nil
}

// storeObject keeps a small thing whole, if it may.
func (d *disk) storeObject(key sources.ID, p []byte) {
	if d == nil || d.own == nil || key == (sources.ID{}) || len(p) == 0 {
		return
	}
	b := d.own.open(key, int64(len(p)))
	if b == nil {
		return
	}
	defer d.own.release(b)
	cells := cellsIn(p)
	for first := 0; first < len(cells); first += pieceCells {
		b.write(int64(first), cells[first:min(first+pieceCells, len(cells))], buffered)
	}
}

func (d *disk) close() error {
	var errs []error
	for _, s := range []*store{d.own, d.shared} {
		if s != nil {
			errs = append(errs, s.close())
		}
	}
	return errors.Join(errs...)
}

// report speaks of the directory, not of what this process keeps below it where another one writes.
func (d *disk) report(s *Stats) {
	if d == nil {
		return
	}
	s.Dir = d.dir
	for _, st := range []*store{d.shared, d.own} {
		if st != nil {
			s.DiskUsed, s.DiskSize = st.held(), st.limit
			return
		}
	}
}
