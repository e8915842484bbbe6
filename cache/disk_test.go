package cache

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"weightfs/fs/plan"
	"weightfs/sources"
)

// reopened closes the cache, if any, and opens a new one on the directory.
func reopened(t *testing.T, c *Cache, o Options) *Cache {
	t.Helper()
	if c != nil {
		closeCache(t, c)
	}
	return newCache(t, o)
}

func diskOptions(t testing.TB) Options { return Options{Dir: t.TempDir(), Size: 1 << 30} }

// TestRestart asks for nothing that is on disk; a blob without a name is asked for again.
func TestRestart(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 5<<20 + 3, named: true}, fakeFile{path: "b", size: 1 << 20})
	o := diskOptions(t)
	c := reopened(t, nil, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 100, 5<<20+3))
	must(t, readBack(ctxb(), f, src, 1, 0, 1<<20))
	c = reopened(t, c, o)
	src.take()
	f = c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 5<<20+3))
	must(t, readBack(ctxb(), f, src, 1, 0, 1<<20))
	wantRequests(t, src, request{"b", 0, 1 << 20})
	if s := c.Stats(); s.BytesDisk != 5<<20+3 || s.BytesStored != 0 || s.DiskUsed < 5<<20 {
		t.Errorf("stats %+v", s)
	}
}

// TestLayout holds the names, sizes and modes on disk, and that data lies where it belongs.
func TestLayout(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 9<<20 + 3, named: true})
	o := diskOptions(t)
	o.Dir = filepath.Join(o.Dir, "weightfs")
	c := reopened(t, nil, o)
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 4<<20, 4<<20+1))
	closeCache(t, c)
	key := fmt.Sprintf("%x", sha256.Sum256([]byte("id:a")))
	base := filepath.Join(o.Dir, "v1", key[:2], key)
	data, err := os.ReadFile(base + ".data")
	must(t, err)
	if int64(len(data)) != src.files[0].size || !bytes.Equal(data[4<<20:4<<20+cellSize], src.files[0].bytes(4<<20, cellSize)) {
		t.Errorf("the data file has %d bytes", len(data))
	}
	var st unix.Stat_t
	must(t, unix.Stat(base+".data", &st))
	if st.Blocks*512 > 2*cellSize {
		t.Errorf("the data file is not sparse: %d bytes for one cell", st.Blocks*512)
	}
	m, err := os.ReadFile(base + ".map")
	must(t, err)
	sum := binary.LittleEndian.AppendUint32(nil, castagnoli(data[4<<20:4<<20+cellSize]))
	if len(m) != 64+24 || !bytes.Equal(m[64+16:64+20], sum) {
		t.Errorf("map file %x", m)
	}
	for p, mode := range map[string]os.FileMode{o.Dir: 0o700, base + ".data": 0o600, base + ".map": 0o600} {
		if info, err := os.Stat(p); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, want mode %o", p, info.Mode(), mode)
		}
	}
}

// damage is one way to spoil a cache directory between two runs.
var damage = []struct {
	name  string
	spoil func(t *testing.T, data, log string)
	fetch bool // something has to be fetched again
}{
	{"nothing", func(*testing.T, string, string) {}, false},
	{"data: first bit", flip(".data", 0, 0), true},
	{"data: a bit in the middle", flip(".data", 1<<20+77, 3), true},
	{"data: last bit", flip(".data", -1, 7), true},
	{"data: cut in a cell", func(t *testing.T, d, _ string) { must(t, os.Truncate(d, 2<<20+99)) }, true},
	{"data: empty", func(t *testing.T, d, _ string) { must(t, os.Truncate(d, 0)) }, true},
	{"data: gone", func(t *testing.T, d, _ string) { must(t, os.Remove(d)) }, true},
	{"data: zeros", func(t *testing.T, d, _ string) { must(t, os.Truncate(d, 0)); must(t, os.Truncate(d, damageSize)) }, true},
	{"data: a directory", func(t *testing.T, d, _ string) { must(t, os.Remove(d)); must(t, os.Mkdir(d, 0o700)) }, true},
	{"data: a link", func(t *testing.T, d, _ string) { must(t, os.Remove(d)); must(t, os.Symlink("/etc/passwd", d)) }, true},
	{"data: a link that takes a block", func(t *testing.T, d, _ string) {
		must(t, os.Remove(d))
		must(t, os.Symlink("/"+strings.Repeat("etc/../", 20)+"etc/passwd", d))
	}, true},
	{"data: a link to the map", func(t *testing.T, d, m string) {
		must(t, os.Remove(d))
		must(t, os.Symlink(strings.Repeat("./", 50)+filepath.Base(m), d))
	}, true},
	{"map: a link", func(t *testing.T, _, m string) { must(t, os.Rename(m, m+".old")); must(t, os.Symlink(m+".old", m)) }, true},
	{"map: magic", flip(".map", 0, 0), true},
	{"map: version", flip(".map", 8, 0), true},
	{"map: size", flip(".map", 16, 0), true},
	{"map: key", flip(".map", 30, 0), true},
	{"map: kind of the first record", flip(".map", 64, 0), true},
	{"map: count of the first record", flip(".map", 68, 0), true},
	{"map: first cell of the first record", flip(".map", 72, 0), true},
	{"map: a checksum", flip(".map", 81, 0), true},
	{"map: last bit", flip(".map", -1, 7), true},
	{"map: torn tail", func(t *testing.T, _, m string) { grow(t, m, -3) }, true},
	{"map: zeros at the end", func(t *testing.T, _, m string) { grow(t, m, 500) }, false},
	{"map: empty", func(t *testing.T, _, m string) { must(t, os.Truncate(m, 0)) }, true},
	{"map: half a header", func(t *testing.T, _, m string) { must(t, os.Truncate(m, 30)) }, true},
	{"map: only zeros", func(t *testing.T, _, m string) { must(t, os.Truncate(m, 0)); must(t, os.Truncate(m, 300)) }, true},
	{"map: huge", func(t *testing.T, _, m string) { must(t, os.Truncate(m, 1<<40)) }, true},
	{"map: gone", func(t *testing.T, _, m string) { must(t, os.Remove(m)) }, true},
	{"map: a directory", func(t *testing.T, _, m string) { must(t, os.Remove(m)); must(t, os.Mkdir(m, 0o700)) }, true},
	{"map: a fifo", func(t *testing.T, _, m string) { must(t, os.Remove(m)); must(t, unix.Mkfifo(m, 0o600)) }, true},
	{"all gone", func(t *testing.T, d, _ string) { must(t, os.RemoveAll(filepath.Dir(filepath.Dir(d)))) }, true},
}

const damageSize = 2<<20 + 300<<10 + 3

// flip flips one bit of the data or map file; negative offsets count from the end.
func flip(ext string, at int64, bit int) func(t *testing.T, data, log string) {
	return func(t *testing.T, data, log string) {
		name := data
		if ext == ".map" {
			name = log
		}
		p, err := os.ReadFile(name)
		must(t, err)
		i := at
		if i < 0 {
			i += int64(len(p))
		}
		p[i] ^= 1 << bit
		must(t, os.WriteFile(name, p, 0o600))
	}
}

func grow(t *testing.T, name string, by int64) {
	info, err := os.Stat(name)
	must(t, err)
	must(t, os.Truncate(name, info.Size()+by))
}

// TestDamage spoils the directory between two runs: what is spoiled is a miss, never a wrong byte, and the run after has all again.
func TestDamage(t *testing.T) {
	for _, test := range damage {
		t.Run(test.name, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: damageSize, named: true})
			o := diskOptions(t)
			c := reopened(t, nil, o)
			must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
			closeCache(t, c)
			src.take()
			test.spoil(t, filesOf(t, o.Dir, ".data")[0], filesOf(t, o.Dir, ".map")[0])
			for run, fetch := range []bool{test.fetch, false} {
				c = newCache(t, o)
				must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
				closeCache(t, c)
				if got := len(src.take()) > 0; got != fetch {
					t.Errorf("run %d after the damage: fetched: %v, want %v", run, got, fetch)
				}
			}
		})
	}
}

// TestDamageWhileOpen spoils files under an open cache.
func TestDamageWhileOpen(t *testing.T) {
	for _, test := range damage {
		t.Run(test.name, func(t *testing.T) {
			src := newFake(fakeFile{path: "a", size: damageSize, named: true})
			o := diskOptions(t)
			o.Memory = 2 << 20 // less than the file: it is read from disk
			c := newCache(t, o)
			f := c.Release(src, src.listing())
			must(t, readBack(ctxb(), f, src, 0, 0, damageSize))
			test.spoil(t, filesOf(t, o.Dir, ".data")[0], filesOf(t, o.Dir, ".map")[0])
			for range 2 {
				must(t, readBack(ctxb(), f, src, 0, 0, damageSize))
			}
		})
	}
}

// TestEveryByteOfAMap flips every byte of a map in turn.
func TestEveryByteOfAMap(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 3*cellSize + 5, named: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, cellSize, cellSize+1))
	must(t, readBack(ctxb(), f, src, 0, 3*cellSize, 3*cellSize+5))
	closeCache(t, c)
	name := filesOf(t, o.Dir, ".map")[0]
	good, err := os.ReadFile(name)
	must(t, err)
	data, err := os.ReadFile(filesOf(t, o.Dir, ".data")[0])
	must(t, err)
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 0x10
		must(t, os.WriteFile(name, bad, 0o600))
		must(t, os.WriteFile(strings.TrimSuffix(name, ".map")+".data", data, 0o600))
		c := newCache(t, o)
		if err := readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, 3*cellSize+5); err != nil {
			t.Fatalf("byte %d flipped: %v", i, err)
		}
		closeCache(t, c)
	}
}

// TestDirectory refuses directories that others could plant bytes in.
func TestDirectory(t *testing.T) {
	base := t.TempDir()
	for _, mode := range []os.FileMode{0o770, 0o707, 0o777, 0o720} {
		dir := filepath.Join(base, fmt.Sprint(mode))
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Chmod(dir, mode))
		if _, err := New(Options{Dir: dir, Memory: 8 << 20}); err == nil || !strings.Contains(err.Error(), "chmod") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
	if os.Geteuid() == 0 {
		dir := filepath.Join(base, "other")
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Chown(dir, 12345, -1))
		if _, err := New(Options{Dir: dir, Memory: 8 << 20}); err == nil || !strings.Contains(err.Error(), "belongs to") {
			t.Errorf("another's directory: %v", err)
		}
	}
	file := filepath.Join(base, "file")
	must(t, os.WriteFile(file, nil, 0o600))
	if _, err := New(Options{Dir: file, Memory: 8 << 20}); err == nil {
		t.Error("a file is no directory")
	}
}

// TestIs tells a cache that nothing is kept in from any other directory.
func TestIs(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "cache")
	must(t, os.WriteFile(filepath.Join(base, version), nil, 0o600))
	for _, other := range []string{dir, base, filepath.Join(base, version), filepath.Join(base, version, "x")} {
		if is, err := Is(other); is || err != nil {
			t.Errorf("%s: %v, %v", other, is, err)
		}
	}
	closeCache(t, newCache(t, Options{Dir: dir, Size: 1 << 30}))
	if is, err := Is(dir); !is || err != nil {
		t.Errorf("a fresh cache: %v, %v", is, err)
	}
}

// TestOwnMount finds the weightfs mount that a directory lies in by its device number.
func TestOwnMount(t *testing.T) {
	const mounts = "22 1 254:1 / / rw shared:1 - ext4 /dev/vda1 rw\n" +
		"90 22 0:45 / /mnt/other ro - fuse.sshfs host: ro\n" +
		"91 22 0:46 / /mnt/qwen ro,nosuid - fuse.weightfs hf:org/name@0123 ro\n"
	for minor, want := range map[uint32]string{45: "", 46: "/mnt/qwen", 47: ""} {
		if got := ownMount(strings.NewReader(mounts), unix.Mkdev(0, minor)); got != want {
			t.Errorf("device 0:%d: %q, want %q", minor, got, want)
		}
	}
}

// TestTwoProcesses has a second cache on the directory: it reads what is there, keeps what it fetches elsewhere, and leaves nothing. (A lock
// is per open file, so that two caches of one process are like two processes.)
func TestTwoProcesses(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 4 << 20, named: true})
	o := diskOptions(t)
	c1 := newCache(t, o)
	must(t, readBack(ctxb(), c1.Release(src, src.listing()), src, 0, 0, 2<<20))
	written(t, c1)
	src.take()
	o2 := o
	o2.Memory, o2.Fetches = 2<<20, 1
	being := filepath.Join(o.Dir, version, "ab", strings.Repeat("ab", 32)+".new") // by the first
	must(t, os.MkdirAll(filepath.Dir(being), 0o700))
	must(t, os.WriteFile(being, nil, 0o600))
	c2 := newCache(t, o2)
	f2 := c2.Release(src, src.listing())
	if _, err := os.Stat(being); err != nil {
		t.Errorf("the second removed what the first was writing: %v", err)
	}
	if s1, s2 := c1.Stats(), c2.Stats(); s2.DiskUsed < 2<<20 || s2.DiskUsed != s1.DiskUsed || s2.DiskSize != s1.DiskSize {
		t.Errorf("the second says that %d of %d bytes are there, the first %d of %d", s2.DiskUsed, s2.DiskSize, s1.DiskUsed, s1.DiskSize)
	}
	must(t, readBack(ctxb(), f2, src, 0, 0, 4<<20))
	written(t, c2)
	at := int64(2 << 20)
	for _, r := range src.take() {
		if r.start != at {
			t.Errorf("asked for %v, want what begins at %d", r, at)
		}
		at = r.end
	}
	if at != 4<<20 {
		t.Errorf("asked up to %d", at)
	}
	must(t, readBack(ctxb(), f2, src, 0, 0, 4<<20))
	wantRequests(t, src)
	if n := len(filesOf(t, filepath.Join(o.Dir, privateDirs), ".data")); n != 1 {
		t.Errorf("the second has %d blobs of its own", n)
	}
	closeCache(t, c2)
	if n := len(filesOf(t, filepath.Join(o.Dir, privateDirs), "lock")); n != 0 {
		t.Errorf("the second left %d directories", n)
	}
	must(t, readBack(ctxb(), c1.files[0], src, 0, 0, 4<<20))
	closeCache(t, c1)
}

// TestSecondSees has a second process that learns, within a second or so, what the first has fetched meanwhile.
func TestSecondSees(t *testing.T) {
	now := &clock{t: time.Unix(1e9, 0)}
	src := newFake(fakeFile{path: "a", size: 6 << 20, named: true})
	o := diskOptions(t)
	o.Now = now.Now
	c1, c2 := newCache(t, o), newCache(t, o)
	f1, f2 := c1.Release(src, src.listing()), c2.Release(src, src.listing())
	must(t, readBack(ctxb(), f2, src, 0, 0, 1)) // before there is anything to see
	for i := range int64(2) {
		must(t, readBack(ctxb(), f1, src, 0, 2<<20+i<<21, 4<<20+i<<21))
		written(t, c1)
		src.take()
		now.add(2 * time.Second)
		must(t, readBack(ctxb(), f2, src, 0, 2<<20+i<<21, 4<<20+i<<21))
		wantRequests(t, src)
	}
}

// TestForeignFiles has a cache in a directory that somebody else uses too: nothing there is touched.
func TestForeignFiles(t *testing.T) {
	o := diskOptions(t)
	names := []string{
		"private/photos/a.jpg", "private/lock", "private/KILLED/v1/ab/x.data", "v1/app.js.map", "v1/train.data", "v1/train.map", "v1/ab/half.new", "v0/train.data", "notes",
	}
	for _, name := range names {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(o.Dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(o.Dir, name), nil, 0o600))
	}
	c := newCache(t, o)
	_, err := c.Prune(0)
	must(t, err)
	_, err = c.CheckDisk(ctxb(), func(int64) {})
	must(t, err)
	closeCache(t, c)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(o.Dir, name)); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(o.Dir, privateDirs, "photos", "lock")); err == nil {
		t.Error("a lock was left in somebody else's directory")
	}
}

// TestLeftOver removes the private directory of a process that was killed.
func TestLeftOver(t *testing.T) {
	o := diskOptions(t)
	left := filepath.Join(o.Dir, privateDirs, rand.Text())
	must(t, os.MkdirAll(filepath.Join(left, "v1", "ab"), 0o700))
	must(t, os.WriteFile(filepath.Join(left, "v1", "ab", "x.data"), make([]byte, 100), 0o600))
	newCache(t, o)
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestOtherFormats: directories of older formats are removed by who writes in the cache, and those of newer ones stay; neither is read.
func TestOtherFormats(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: damageSize, named: true})
	o := diskOptions(t)
	c := newCache(t, o)
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
	closeCache(t, c)
	must(t, os.CopyFS(filepath.Join(o.Dir, "v0"), os.DirFS(filepath.Join(o.Dir, version))))
	for _, name := range []string{"v2", "vault", "v"} {
		must(t, os.MkdirAll(filepath.Join(o.Dir, name, "ab"), 0o700))
	}
	must(t, os.MkdirAll(filepath.Join(o.Dir, "v00"), 0o700))
	must(t, os.WriteFile(filepath.Join(o.Dir, "v00", "thesis.data"), nil, 0o600)) // somebody else's
	must(t, os.Rename(filepath.Join(o.Dir, version), filepath.Join(o.Dir, "v3")))
	src.take()
	c = newCache(t, o)
	if used := c.Stats().DiskUsed; used != 0 {
		t.Errorf("%d bytes of other formats are counted", used)
	}
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
	if len(src.take()) == 0 {
		t.Error("a directory of another format was read")
	}
	closeCache(t, c)
	entries, err := os.ReadDir(o.Dir)
	must(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"lock", "v", "v00", "v1", "v2", "v3", "vault"}; !slices.Equal(names, want) {
		t.Errorf("the directory has %q, want %q", names, want)
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "v00", "thesis.data")); err != nil {
		t.Error(err)
	}
}

// TestOldMaps: a map of another version is none, and goes with its data.
func TestOldMaps(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: damageSize, named: true})
	o := diskOptions(t)
	c := newCache(t, o)
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
	closeCache(t, c)
	name := filesOf(t, o.Dir, ".map")[0]
	p, err := os.ReadFile(name)
	must(t, err)
	p[8]++
	binary.LittleEndian.PutUint32(p[60:], checksum(p[:60]))
	must(t, os.WriteFile(name, p, 0o600))
	src.take()
	c = newCache(t, o)
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, damageSize))
	if len(src.take()) == 0 {
		t.Error("a map of another version was read")
	}
	closeCache(t, c)
	if after, err := os.ReadFile(name); err != nil || after[8] != mapVersion {
		t.Errorf("the map was not written anew: %v", err)
	}
}

// TestSizeLimit keeps the directory under its size by dropping what was used longest ago, also of blobs that are open.
func TestSizeLimit(t *testing.T) {
	now := &clock{t: time.Unix(1e9, 0)}
	src := newFake(fakeFile{path: "a", size: 32 << 20, named: true}, fakeFile{path: "b", size: 8 << 20, named: true})
	o := diskOptions(t)
	o.Size, o.Now, o.Memory = 8<<20, now.Now, 2<<20
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	for off := int64(0); off < 32<<20; off += 2 << 20 {
		now.add(time.Minute)
		must(t, readBack(ctxb(), f, src, 0, off, off+2<<20))
		written(t, c)
		forget(c)
		now.add(time.Minute)
		must(t, readBack(ctxb(), f, src, 0, 0, 1)) // from disk, which keeps the first piece
	}
	if s := c.Stats(); s.DiskUsed > 8<<20 || s.BytesEvicted < 20<<20 {
		t.Errorf("stats %+v", s)
	}
	if used := diskUse(t, o.Dir); used > 8<<20+1<<20 {
		t.Errorf("%d bytes on disk", used)
	}
	src.take()
	must(t, readBack(ctxb(), f, src, 0, 0, 2<<20))
	must(t, readBack(ctxb(), f, src, 0, 30<<20, 32<<20))
	wantRequests(t, src)
	must(t, readBack(ctxb(), f, src, 0, 4<<20, 6<<20))
	if len(src.take()) == 0 {
		t.Error("a piece that was not used for long is still there")
	}
	// After a restart the blobs at rest are the oldest.
	c = reopened(t, c, o)
	f = c.Release(src, src.listing())
	now.add(time.Hour)
	must(t, readBack(ctxb(), f, src, 1, 0, 8<<20))
	written(t, c)
	src.take()
	must(t, readBack(ctxb(), f, src, 1, 6<<20, 8<<20))
	wantRequests(t, src)
	if used := diskUse(t, o.Dir); used > 8<<20+1<<20 {
		t.Errorf("%d bytes on disk", used)
	}
	must(t, readBack(ctxb(), f, src, 0, 0, 32<<20))
}

// diskUse is the bytes of blocks below a directory.
func diskUse(t *testing.T, dir string) (n int64) {
	for _, p := range filesOf(t, dir, "") {
		if info, err := os.Lstat(p); err == nil {
			n += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
	}
	return n
}

// TestRewrite makes a map of mostly outdated records, which the next run replaces by a short one that says the same.
func TestRewrite(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 8 << 20, named: true})
	o := diskOptions(t)
	o.Size, o.Memory = 2<<20, 2<<20
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	for range 10 {
		must(t, readBack(ctxb(), f, src, 0, 0, 8<<20))
	}
	closeCache(t, c)
	name, want := filesOf(t, o.Dir, ".map")[0], mapHead{sha256.Sum256([]byte("id:a")), 8 << 20}
	before, err := os.ReadFile(name)
	must(t, err)
	c = newCache(t, o)
	must(t, c.Release(src, src.listing()).Gather(ctxb(), []plan.Read{{Span: span(0, 0, 1), Dst: make([]byte, 1)}}, nil))
	closeCache(t, c)
	after, err := os.ReadFile(name)
	must(t, err)
	if len(after) >= len(before)/2 {
		t.Errorf("the map had %d bytes and has %d", len(before), len(after))
	}
	x, _, err := parseMap(before, want)
	must(t, err)
	y, _, err := parseMap(after, want)
	must(t, err)
	if x.cells == 0 || y.cells < x.cells-pieceCells {
		t.Errorf("the map had %d cells and has %d", x.cells, y.cells)
	}
}

// TestDiskFull has a file system that is full, and later is not: reads go on, and after a pause things are kept again.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=12m,mode=700"); err != nil {
		t.Skipf("NOT RUN: no tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	full := filepath.Join(dir, "full")
	must(t, os.WriteFile(full, make([]byte, 11<<20), 0o600))
	now := &clock{t: time.Unix(1e9, 0)}
	src := newFake(fakeFile{path: "a", size: 16 << 20, named: true})
	c := newCache(t, Options{Dir: dir, Size: 1 << 30, Memory: 2 << 20, Now: now.Now})
	defer closeCache(t, c)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 16<<20))
	written(t, c)
	must(t, os.Remove(full))
	now.add(2 * pause)
	must(t, readBack(ctxb(), f, src, 0, 0, 2<<20))
	written(t, c)
	must(t, readBack(ctxb(), f, src, 0, 4<<20, 6<<20))
	written(t, c)
	src.take()
	must(t, readBack(ctxb(), f, src, 0, 0, 1<<20))
	wantRequests(t, src)
	must(t, readBack(ctxb(), f, src, 0, 0, 16<<20))
	written(t, c)
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if st.Bavail*10 < st.Blocks {
		t.Errorf("%d of %d blocks are free", st.Bavail, st.Blocks)
	}
}

// TestNoInodes has a file system with room but without inodes: what has files is kept and used, for all else reads go on.
func TestNoInodes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: mounting a small tmpfs needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,nr_inodes=9,mode=700"); err != nil {
		t.Skipf("NOT RUN: no tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	var files []fakeFile
	for i := range 6 {
		files = append(files, fakeFile{path: fmt.Sprint("f", i), size: 1 << 20, named: true})
	}
	src := newFake(files...)
	c := newCache(t, Options{Dir: dir, Size: 1 << 30, Memory: 2 << 20})
	defer closeCache(t, c)
	f := c.Release(src, src.listing())
	for range 2 {
		for i := range files {
			must(t, readBack(ctxb(), f, src, i, 0, 1<<20))
			written(t, c)
		}
	}
	if s := c.Stats(); s.BytesStored == 0 || s.BytesStored >= 6<<20 || s.BytesDisk == 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestWriteFails takes the files away from under a blob, on either way to the disk: writes end for a while, and no cell is there that is not.
func TestWriteFails(t *testing.T) {
	for _, w := range []writing{buffered, direct} {
		now := &clock{t: time.Unix(1e9, 0)}
		o := Options{Dir: t.TempDir(), Size: 1 << 30, Now: now.Now, Memory: 2 << 20}
		o.defaults()
		var stats counters
		d, err := openDisk(o, &stats)
		must(t, err)
		data := content0(1, 8<<20)
		b := d.own.open(sources.ID{1}, 8<<20)
		write := func(group int64) { b.write(group*pieceCells, cellsIn(data[group<<21:(group+1)<<21]), w) }
		write(0)
		way := &b.data
		if b.past != nil {
			way = &b.past
		}
		for i, broken := range []**os.File{way, &b.log} {
			whole := *broken
			file, err := os.Open(whole.Name()) // for reading only
			must(t, err)
			*broken = file
			write(1)
			write(2) // in the pause
			*broken = whole
			file.Close()
			if b.present(0) != 0xffff || b.present(1) != 0 || b.present(2) != 0 || d.own.held() != 2<<20 || stats.stored.Load() != 2<<20 {
				t.Errorf("%v, %d: cells %x %x %x, %d bytes held", w, i, b.present(0), b.present(1), b.present(2), d.own.held())
			}
			now.add(2 * pause)
		}
		if !b.broken {
			t.Error("a map that could not be cut is written again")
		}
		if got := b.read(0, cellsIn(make([]byte, 2<<20))); slices.Contains(got, false) {
			t.Error("what was there is gone")
		}
		other := d.own.open(sources.ID{2}, 2<<20)
		other.write(0, cellsIn(data[:2<<20]), w)
		if other.present(0) != 0xffff {
			t.Error("nothing is written after the pause")
		}
		must(t, d.close())
	}
}

// TestNotPastThePageCache: a file that takes nothing past the page cache, as with blocks larger than its memory is aligned to, is written through it.
func TestNotPastThePageCache(t *testing.T) {
	o := Options{Dir: t.TempDir(), Size: 1 << 30, Memory: 2 << 20}
	o.defaults()
	d, err := openDisk(o, &counters{})
	must(t, err)
	defer d.close()
	data := content0(1, 4<<20+1)[1:] // odd: what is written past the page cache has to be aligned
	b := d.own.open(sources.ID{1}, 4<<20)
	for group := range int64(2) {
		b.write(group*pieceCells, cellsIn(data[group<<21:(group+1)<<21]), direct)
		got := make([]byte, 2<<20)
		if good := b.read(group*pieceCells, cellsIn(got)); slices.Contains(good, false) || !bytes.Equal(got, data[group<<21:(group+1)<<21]) {
			t.Errorf("group %d was not written: %v", group, good)
		}
	}
}

// TestReadOnly has a directory on a file system that becomes read-only: what is there is used, and reads go on.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT RUN: remounting needs root")
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=700"); err != nil {
		t.Skipf("NOT RUN: no tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	src := newFake(fakeFile{path: "a", size: 8 << 20, named: true})
	o := Options{Dir: dir, Size: 1 << 30, Memory: 2 << 20}
	c := newCache(t, o)
	must(t, readBack(ctxb(), c.Release(src, src.listing()), src, 0, 0, 4<<20))
	closeCache(t, c)
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	src.take()
	c = newCache(t, o)
	defer closeCache(t, c)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 4<<20))
	wantRequests(t, src)
	must(t, readBack(ctxb(), f, src, 0, 0, 8<<20))
}

// TestVerified hashes a blob once when it is complete, and tells by its map afterwards.
func TestVerified(t *testing.T) {
	src := newFake(fakeFile{path: "a", size: 3<<20 + 1, sha: true})
	o := diskOptions(t)
	c := newCache(t, o)
	f := c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 2<<20))
	if _, _, ok := f.Complete(0); ok {
		t.Error("half a blob is complete")
	}
	must(t, readBack(ctxb(), f, src, 0, 0, 3<<20+1))
	closeCache(t, c) // waits for the hash, or ends it
	c = newCache(t, o)
	f = c.Release(src, src.listing())
	must(t, readBack(ctxb(), f, src, 0, 0, 1))
	waitFor(t, func() bool { _, done, ok := f.Complete(0); finish(done); return ok })
	closeCache(t, c)
	m, err := os.ReadFile(filesOf(t, o.Dir, ".map")[0])
	must(t, err)
	if x, _, err := parseMap(m, mapHead{sha256.Sum256(src.files[0].bytes(0, 3<<20+1)), -1}); err != nil || !x.whole {
		t.Errorf("the map does not say that the blob was verified: %v", err)
	}
}

func finish(done func()) {
	if done != nil {
		done()
	}
}

// written waits until everything that was fetched has been given to the disk.
func written(t *testing.T, c *Cache) {
	t.Helper()
	waitFor(t, func() bool { return c.Stats().Pinned == 0 })
}

// waitFor polls for something that happens in the background; the test's own timeout ends it.
func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for !ok() {
		time.Sleep(time.Millisecond)
	}
}

// TestCorrupt has a source whose bytes do not match their hash: the blob is dropped and fetched again; the second time it is an error.
func TestCorrupt(t *testing.T) {
	for _, heals := range []bool{true, false} {
		t.Run(fmt.Sprint("heals ", heals), func(t *testing.T) {
			data := content0(5, 2<<20+9)
			src := newFake(fakeFile{path: "a", data: data, sha: true})
			l := src.listing()
			id := sources.ID(sha256.Sum256(data))
			src.files[0].id = id
			wrong := append([]byte(nil), data...)
			wrong[1<<20] ^= 1
			src.files[0].data = wrong
			c := newCache(t, diskOptions(t))
			f := c.Release(src, l)
			p := make([]byte, len(data))
			read := func() error { return f.Gather(ctxb(), []plan.Read{{Span: span(0, 0, int64(len(p))), Dst: p}}, nil) }
			must(t, read())
			waitFor(t, func() bool { return c.Stats().CorruptBlobs == 1 && c.Stats().DiskUsed == 0 })
			if heals {
				src.files[0].data = data
			}
			must(t, read())
			if heals {
				waitFor(t, func() bool { _, done, ok := f.Complete(0); finish(done); return ok })
				must(t, read())
				if !bytes.Equal(p, data) {
					t.Error("wrong bytes")
				}
				return
			}
			waitFor(t, func() bool { return errors.Is(read(), sources.ErrCorrupt) })
		})
	}
}

// TestPastThePageCache looks for what was fetched in the page cache: all whole cells but those of the piece with the end of the file are written past it,
// and verification, after which readers may map the file, brings all of it in.
func TestPastThePageCache(t *testing.T) {
	const size = 6<<20 + 1
	for _, sha := range []bool{false, true} {
		src := newFake(fakeFile{path: "a", size: size, named: !sha, sha: sha})
		o := diskOptions(t)
		o.Memory = 128 << 20 // so that no piece has to wait
		c := newCache(t, o)
		f := c.Release(src, src.listing())
		must(t, readBack(ctxb(), f, src, 0, 0, size))
		written(t, c)
		var st unix.Statfs_t
		must(t, unix.Statfs(o.Dir, &st))
		if c.disk.own.indirect.Load() || st.Type == unix.TMPFS_MAGIC {
			t.Skip("NOT RUN: the file system of the test's directory does not write past its page cache")
		}
		first, most := int64(0), int64(2<<20)
		if sha {
			waitFor(t, func() bool { _, done, ok := f.Complete(0); finish(done); return ok })
			first, most = size, size+pageSize
		}
		if got := inPageCache(t, filesOf(t, o.Dir, ".data")[0]); got < first || got > most {
			t.Errorf("with a SHA-256: %v: %d bytes are in the page cache, they should be %d to %d", sha, got, first, most)
		}
		closeCache(t, c)
	}
}

const pageSize = 4096

// inPageCache is how many bytes of a file's pages are in the page cache.
func inPageCache(t *testing.T, name string) (n int64) {
	t.Helper()
	f, err := os.Open(name)
	must(t, err)
	defer f.Close()
	info, err := f.Stat()
	must(t, err)
	p, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	must(t, err)
	defer unix.Munmap(p)
	there := make([]byte, (len(p)+pageSize-1)/pageSize)
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(unsafe.Pointer(&there[0])))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, x := range there {
		n += int64(x&1) * pageSize
	}
	return n
}
