package fs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	fusefs "github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mountType is the type of weightfs mounts in mountinfo.
const mountType = "fuse.weightfs"

// MountOptions are the choices a user has.
type MountOptions struct {
	// Name is shown as the mounted device: hf:org/name@sha12. It must hold no secret.
	Name string
	// AllowOther lets other users in; they read with the owner's rights at the source.
	AllowOther bool
	// NoPassthrough has every read go through this process.
	NoPassthrough bool
	// Replies is about how many bytes the replies to the kernel's read-ahead may take at a time, 64 MiB if 0. What readers wait for is
	// answered in any case.
	Replies int64
	// ReadAheadKB is the kernel's read-ahead, 1024 if 0. Only root can set it.
	ReadAheadKB int
}

const defaultReadAheadKB = 1024

// Mount is a mounted FS.
type Mount struct {
	dir    string
	direct bool
	server *fuse.Server
	fs     *FS
	door   *door
	end    context.CancelFunc // of the door's life
	minor  uint32             // of the mount's device: the number of its FUSE connection too
	major  uint32

	passWhy string // passthrough is off, "" if it is on
}

// Mount mounts the FS on a directory and returns when it answers. A dead weightfs mount in its place is cleaned away first; any
// other mount is an error. Close or Wait must be called in the end.
func (f *FS) Mount(dir string, o MountOptions) (*Mount, error) {
	dir, err := mountPoint(dir)
	if err != nil {
		return nil, err
	}
	if err := clearPlace(dir); err != nil {
		return nil, err
	}
	m := &Mount{dir: dir, fs: f}
	if err := m.start(o); err != nil {
		m.end()
		return nil, err
	}
	if err := m.tune(o); err != nil {
		f.log.Warn(err.Error())
	}
	m.startPassthrough(o)
	f.mount.Store(m)
	return m, nil
}

// start mounts directly, which root and the root of a user namespace may, else through fusermount3.
func (m *Mount) start(o MountOptions) error {
	life, end := context.WithCancel(context.Background())
	m.end = end
	if err := tryFUSE(); err != nil {
		return fmt.Errorf("mount %s: %w", m.dir, err)
	}
	d := newDoor(m.fs, life)
	m.door = d
	mount := func(direct bool) (err error) {
		m.direct = direct
		m.server, err = serve(m.dir, &node{door: d, at: m.fs.root}, d.options(o, direct))
		return err
	}
	direct := mount(true)
	if direct == nil {
		return nil
	}
	helper := findHelper()
	if helper == "" {
		return fmt.Errorf("mount %s: %w, and there is no fusermount3; install fuse3, or mount as root, or in a namespace of your own (unshare -Urm)", m.dir, direct)
	}
	if err := mount(false); err != nil {
		return fmt.Errorf("mount %s: %w, and with %s: %w (it says why on standard error, which a mount in the foreground shows)", m.dir, direct, helper, err)
	}
	return nil
}

// tryFUSE says why nothing can be mounted here by this user, with or without a helper: fusermount3 opens the device as its caller.
func tryFUSE() error {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("/dev/fuse cannot be opened: %w; as root chmod 666 /dev/fuse, or start the container with --device /dev/fuse --cap-add SYS_ADMIN; "+
			"weightfs serve needs no FUSE", os.ErrPermission)
	}
	return fmt.Errorf("this machine has no FUSE (%v); load the fuse module, or start the container with --device /dev/fuse --cap-add SYS_ADMIN", err)
}

// serve mounts and begins to answer; the kernel has been greeted when it returns. It does not wait for the mount as the library would, which
// opens a file of it: a process that is killed while it waits for an answer of its own never ends, and neither does its mount.
func serve(dir string, root fusefs.InodeEmbedder, o *fusefs.Options) (*fuse.Server, error) {
	s, err := fuse.NewServer(fusefs.NewNodeFS(root, o), dir, &o.MountOptions)
	if err == nil {
		go s.Serve()
	}
	return s, err
}

// findHelper is the program that mounts for users who may not.
func findHelper() string {
	for _, name := range []string{"fusermount3", "fusermount"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// tune finds the mount's device and raises the kernel's read-ahead if that is permitted.
func (m *Mount) tune(o MountOptions) error {
	info, err := mountAt(m.dir)
	if err != nil || info == nil {
		return fmt.Errorf("the mount %s is not in the mount table (%v): its read-ahead stays as it is", m.dir, err)
	}
	m.major, m.minor = uint32(info.Major), uint32(info.Minor)
	kb := o.ReadAheadKB
	if kb <= 0 {
		kb = defaultReadAheadKB
	}
	if os.Geteuid() == 0 {
		// Not permitted in a container, which is no failure: the effective value is in the status.
		_ = os.WriteFile(m.readAheadFile(), []byte(strconv.Itoa(kb)), 0)
	}
	return nil
}

// startPassthrough turns passthrough on where it can be had. That it cannot is no failure: the status says why.
func (m *Mount) startPassthrough(o MountOptions) {
	err := errNotAsked
	if !o.NoPassthrough {
		err = m.door.pass.start(m.server)
	}
	if err != nil {
		m.passWhy = err.Error()
	}
}

func (m *Mount) readAheadFile() string {
	return fmt.Sprintf("/sys/class/bdi/%d:%d/read_ahead_kb", m.major, m.minor)
}

func (m *Mount) status() *MountStatus {
	text, _ := os.ReadFile(m.readAheadFile())
	kb, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	pass := &m.door.pass
	return &MountStatus{
		Dir: m.dir, Connection: m.minor, ReadAheadKB: kb, Direct: m.direct,
		Passthrough: PassthroughStatus{m.passWhy == "", m.passWhy, pass.opens.Load(), pass.failed.Load()},
	}
}

// Dir is the absolute path of the mount point.
func (m *Mount) Dir() string { return m.dir }

// Wait returns when the mount is gone, whoever unmounted it, and its last user too.
func (m *Mount) Wait() {
	m.server.Wait()
	m.end()
	m.fs.mount.CompareAndSwap(m, nil)
}

// ErrBusy says that files of the mount are in use.
var ErrBusy = errors.New("files of the mount are in use")

// Unmount unmounts and waits for the last request. A mount in use stays, is served on, and gives ErrBusy.
func (m *Mount) Unmount() error {
	if _, err := m.Leave(); err != nil {
		return err
	}
	m.Wait()
	return nil
}

// Leave unmounts and does not wait. A mount in use stays, is served on, and gives ErrBusy. A process whose mount namespace was made while the
// mount was there has a copy of it, which goes on and is served until that namespace ends: elsewhere is one process of each, as
// far as this user may know.
func (m *Mount) Leave() (elsewhere []string, err error) {
	// A file that was closed a moment ago may still count as open.
	for wait := 5 * time.Millisecond; ; wait *= 2 {
		if !m.here() {
			return nil, nil // somebody else took it away: who uses it still is served
		}
		err := unmount(m.dir, false)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrBusy) {
			return nil, err
		}
		if wait > 100*time.Millisecond {
			return nil, busy(m.dir)
		}
		time.Sleep(wait)
	}
	if elsewhere = copies(m.major, m.minor); len(elsewhere) == 0 {
		m.end() // what is still being read, nobody waits for
	}
	return elsewhere, nil
}

// Detach takes the mount out of the tree at once; those who use it are served until they end.
func (m *Mount) Detach() error {
	if !m.here() {
		return nil
	}
	return Unmount(m.dir, true)
}

// here says whether the mount is still in its place: somebody else may have unmounted it, and another may stand there now.
func (m *Mount) here() bool {
	info, err := mountAt(m.dir)
	if err != nil || m.minor == 0 {
		return true // it cannot be known
	}
	return info != nil && uint32(info.Major) == m.major && uint32(info.Minor) == m.minor
}

// notMounted is the error of unmounting what is no mount of weightfs. It also is os.ErrNotExist.
type notMounted struct{ dir, why string }

func (e *notMounted) Error() string { return fmt.Sprintf("unmount %s: %s", e.dir, e.why) }

func (*notMounted) Is(target error) bool { return target == os.ErrNotExist }

// Unmount unmounts a weightfs mount of this or any other process, alive or dead; lazily, if it may be in use. Where there is none the error is
// os.ErrNotExist.
func Unmount(dir string, lazy bool) error {
	at, err := mountPoint(dir)
	if errors.Is(err, os.ErrNotExist) {
		return &notMounted{dir, "there is no such directory"}
	}
	if err != nil {
		return err
	}
	dir = at
	info, err := mountAt(dir)
	switch {
	case err != nil:
		return err
	case info == nil:
		return &notMounted{dir, "nothing is mounted there"}
	case info.FSType != mountType:
		return &notMounted{dir, fmt.Sprintf("it is a mount of %s, not of weightfs", info.FSType)}
	}
	if err = unmount(dir, lazy || !alive(dir)); errors.Is(err, ErrBusy) {
		return busy(dir)
	}
	return err
}

func unmount(dir string, lazy bool) error {
	flags, args := unix.UMOUNT_NOFOLLOW, []string{"-u", dir}
	if lazy {
		flags, args = flags|unix.MNT_DETACH, []string{"-u", "-z", dir}
	}
	err := unix.Unmount(dir, flags)
	helper := findHelper()
	switch {
	case err == unix.EBUSY:
		return fmt.Errorf("unmount %s: %w", dir, ErrBusy)
	case err == nil:
		return nil
	case helper == "":
		return fmt.Errorf("unmount %s: %w", dir, err)
	}
	out, err := exec.Command(helper, args...).CombinedOutput()
	if strings.Contains(string(out), "busy") {
		return fmt.Errorf("unmount %s: %w", dir, ErrBusy)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %s: %w", dir, strings.TrimSpace(string(out)), err)
	}
	return nil
}

// mountPoint is the absolute path of a mount point. Links above it are followed, and its own if it is one; a dead mount cannot be looked at.
func mountPoint(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if info, err := os.Lstat(abs); err == nil && info.Mode()&os.ModeSymlink != 0 {
		return filepath.EvalSymlinks(abs)
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(abs))
	if err != nil {
		return "", fmt.Errorf("mount point %s: %w", dir, err)
	}
	return filepath.Join(parent, filepath.Base(abs)), nil
}

// mountAt is the topmost mount on a directory, nil if there is none.
func mountAt(dir string) (*mountinfo.Info, error) {
	infos, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) { return i.Mountpoint != dir, false })
	if err != nil || len(infos) == 0 {
		return nil, err
	}
	return infos[len(infos)-1], nil
}

// clearPlace makes sure that dir is a directory on which nothing is mounted. Dead weightfs mounts are unmounted.
func clearPlace(dir string) error {
	for range 10 {
		info, err := mountAt(dir)
		if err != nil {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
		if info == nil {
			return checkDir(dir)
		}
		if info.FSType != mountType {
			return fmt.Errorf("mount %s: something is mounted there already (%s, type %s); choose another directory or unmount it", dir, info.Source, info.FSType)
		}
		if alive(dir) {
			return fmt.Errorf("mount %s: weightfs has %s mounted there already; weightfs umount %s ends it", dir, info.Source, dir)
		}
		if err := unmount(dir, true); err != nil {
			return fmt.Errorf("mount %s: a dead mount is in the way: %w", dir, err)
		}
	}
	return fmt.Errorf("mount %s: too many dead mounts are stacked there", dir)
}

func checkDir(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("mount %s: there is no such directory; mkdir -p %s makes it", dir, dir)
	}
	if err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("mount %s: it is not a directory", dir)
	}
	return nil
}

// aliveWithin is how long a mount may take to answer before it counts as alive but stuck.
const aliveWithin = 5 * time.Second

// alive says whether a process stands behind a mount. statfs is what the kernel never answers from memory. A process that does not answer
// in time is taken to be alive: it is not ours to end.
func alive(dir string) bool {
	dead := make(chan bool, 1)
	go func() {
		var st unix.Statfs_t
		dead <- unix.Statfs(dir, &st) == unix.ENOTCONN
	}()
	select {
	case d := <-dead:
		return !d
	case <-time.After(aliveWithin):
		return true
	}
}
