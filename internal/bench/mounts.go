package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// mount is a mounted program, of weightfs or another.
type mount struct {
	bench   *bench
	dir     string
	process *process
	budget  int64  // of a weightfs, 0 for others
	label   string // for the table of memory
	cache   string // of this mount alone
	started time.Time
	ready   time.Duration // from then until views were there
}

// how is what a mount of weightfs is told. The zero value is a new cache and the defaults.
type how struct {
	label     string
	cache     string // cache directory
	memory    int64
	readAhead int // KiB written to the mount's device afterwards, 0 leaves what weightfs set
	args      []string
	measured  bool // mounting is what is measured: the ballast is let go of before
}

// userReadAhead is what a mount of an ordinary user has: the kernel's default, which weightfs may not raise there.
const userReadAhead = 128

// ownReadAhead is what weightfs sets where it may.
const ownReadAhead = 1024

const defaultBudget = 2 << 30 // of --memory, on machines with 8 GB or more

// mount mounts a release from a hub with weightfs and waits until its views are there.
func (b *bench) mount(h *hub, release string, o how) (*mount, error) {
	m := &mount{bench: b, dir: b.fresh("mount"), budget: defaultBudget, label: o.label}
	if o.cache == "" {
		m.cache = b.fresh("cache")
		o.cache = m.cache
	}
	args := append([]string{"mount", "--cache-dir", o.cache, "--cache-size", "20GB"}, o.args...)
	if o.memory > 0 {
		m.budget = o.memory
		args = append(args, "--memory", fmt.Sprint(o.memory))
	}
	if err := b.ballast.take(); err != nil {
		return nil, err
	}
	if o.measured {
		if err := b.ballast.drop(); err != nil {
			return nil, err
		}
	}
	if err := m.start(h.env(), b.weightfs, append(args, "hf://demo/"+release, m.dir)...); err != nil {
		return nil, err
	}
	_, err := os.Stat(filepath.Join(m.dir, "resident"))
	if m.ready = time.Since(m.started); err != nil || o.readAhead == 0 {
		return m, err
	}
	// weightfs sets its own a moment after it has mounted.
	err = b.waitFor(m.process, "the read-ahead of weightfs", func() bool {
		kb, err := os.ReadFile(m.readAheadFile())
		return err == nil && strings.TrimSpace(string(kb)) == strconv.Itoa(ownReadAhead)
	})
	if err != nil {
		return nil, err
	}
	return m, m.setReadAhead(o.readAhead)
}

// start starts a program that mounts on m.dir and waits until it has.
func (m *mount) start(env []string, program string, args ...string) (err error) {
	b := m.bench
	m.started = time.Now()
	if m.process, err = b.start(filepath.Base(program), env, program, args...); err != nil {
		return err
	}
	b.mounts = append(b.mounts, m)
	return b.waitFor(m.process, filepath.Base(program), func() bool { return device(m.dir) != "" })
}

// device is the number of the device mounted on dir, major:minor, "" if there is none.
func device(dir string) string {
	infos, _ := mountinfo.GetMounts(mountinfo.SingleEntryFilter(dir))
	if len(infos) == 0 {
		return ""
	}
	return fmt.Sprintf("%d:%d", infos[0].Major, infos[0].Minor)
}

func (m *mount) readAheadFile() string {
	return "/sys/class/bdi/" + device(m.dir) + "/read_ahead_kb"
}

func (m *mount) setReadAhead(kb int) error {
	return os.WriteFile(m.readAheadFile(), fmt.Append(nil, kb), 0)
}

func (m *mount) path(elem ...string) string {
	return filepath.Join(append([]string{m.dir}, elem...)...)
}

// end unmounts, ends the program, and notes how much memory it had.
func (m *mount) end() {
	b := m.bench
	b.mounts = slices.DeleteFunc(b.mounts, func(x *mount) bool { return x == m })
	if rss := peakRSS(m.process.Process.Pid); m.budget > 0 && rss > 0 {
		b.peaks = append(b.peaks, peak{m.label, rss, m.budget})
	}
	for wait := 10 * time.Millisecond; device(m.dir) != ""; wait *= 2 {
		if err := unix.Unmount(m.dir, 0); err == nil || wait < 200*time.Millisecond && errors.Is(err, unix.EBUSY) {
			time.Sleep(wait)
			continue
		}
		unix.Unmount(m.dir, unix.MNT_DETACH)
		break
	}
	m.process.end()
	if device(m.dir) != "" { // a program that left its mount behind
		unix.Unmount(m.dir, unix.MNT_DETACH)
	}
	os.Remove(m.dir)
	if m.cache != "" {
		os.RemoveAll(m.cache)
	}
}

// check compares pages of a mounted file with the file it stands for: a fast reader of wrong bytes must not win.
func (m *mount) check(path, truth string) error {
	got, err := os.Open(path)
	if err != nil {
		return err
	}
	defer got.Close()
	want, err := os.Open(truth)
	if err != nil {
		return err
	}
	defer want.Close()
	st, err := want.Stat()
	if err != nil {
		return err
	}
	a, c := make([]byte, 4096), make([]byte, 4096)
	for i := range int64(16) {
		off := st.Size() / 17 * i
		if _, err := got.ReadAt(a, off); err != nil {
			return err
		}
		if _, err := want.ReadAt(c, off); err != nil {
			return err
		}
		if !bytes.Equal(a, c) {
			return fmt.Errorf("%s is not %s at %d", path, truth, off)
		}
	}
	return nil
}

// truth is a file of a release on disk.
func (b *bench) truth(release, path string) string {
	return filepath.Join(b.dir, "releases", "demo", release, path)
}
