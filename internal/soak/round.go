package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/cache"
	"weightfs/internal/hubtest"
)

// scene is a round that is going on.
type scene struct {
	*world
	round
	rnd     *rand.Rand
	faults  *hubtest.Plan
	cache   string // directory
	daemons []*daemon
	readers []*running
	fios    []*fioRun
}

// round mounts, reads while things happen, and unmounts.
func (w *world) round(ctx context.Context, p round) (err error) {
	s := &scene{world: w, round: p, rnd: rand.New(rand.NewPCG(p.seed, 2))}
	if s.faults, err = hubtest.ParsePlan(p.faults); err != nil {
		return err
	}
	defer w.closeFront()
	defer w.closeHub()
	if err := s.openHub(); err != nil {
		return err
	}
	if err := s.makeCache(); err != nil {
		return err
	}
	defer s.dropCache()
	defer s.abandon()
	if err := s.play(ctx); err != nil {
		for _, d := range s.daemons {
			err = d.explained(err)
		}
		return err
	}
	w.total.faults.Add(s.faults.Fired())
	if n := w.total.leaks.Load(); n > 0 {
		return fmt.Errorf("%d requests to the CDN had the token", n)
	}
	return nil
}

// openHub starts the hub, and a proxy before it if there is to be one and it is installed.
func (s *scene) openHub() error {
	i := slices.IndexFunc(proxies, func(k proxyKind) bool { return k.name == s.proxy })
	if i < 0 || slices.Contains(s.absent, s.proxy) {
		return s.open(s.faults, s.latency)
	}
	p, err := newProxy(s.addr)
	if err != nil {
		return err
	}
	s.front = p
	s.total.behind++
	return errors.Join(s.open(s.faults, s.latency), p.start(proxies[i]))
}

func (w *world) closeFront() {
	if w.front != nil {
		w.front.stop()
	}
	w.front = nil
}

// seal seals all that is mounted. What damage the directory has from other rounds is found by that, and fetched again.
func (s *scene) seal(ctx context.Context) error {
	if !s.sealed {
		return nil
	}
	s.total.sealed++
	for _, source := range s.sources() {
		if err := s.command(ctx, "seal", "--cache-dir="+s.cache, source); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) play(ctx context.Context) error {
	if err := os.MkdirAll(s.path("mnt"), 0o777); err != nil {
		return err
	}
	if err := s.seal(ctx); err != nil {
		return err
	}
	for i := range s.mounts {
		d, err := s.mount(s.round, i, s.cache)
		if err != nil {
			return err
		}
		s.daemons = append(s.daemons, d)
	}
	if err := errors.Join(s.startReaders(), s.startFio()); err != nil {
		return err
	}
	began := time.Now()
	for _, e := range s.events {
		select {
		case <-time.After(time.Until(began.Add(e.after))):
		case <-ctx.Done():
		}
		s.total.events++
		if err := s.happen(ctx, e.what); err != nil {
			return fmt.Errorf("%s: %w", e.what, err)
		}
	}
	if err := errors.Join(s.endReaders(), s.endFio()); err != nil {
		return err
	}
	for _, d := range s.daemons {
		if err := errors.Join(within("a look at "+d.dir, func() error { return d.calm(s.connections) }), d.stop(s.world)); err != nil {
			return err
		}
		if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
			return fmt.Errorf("after the daemon's end %s has %d entries: %v", d.dir, len(left), err)
		}
	}
	s.daemons = nil
	return s.tidy(ctx)
}

// tidy looks after the cache of a round when nobody uses it any more: what was damaged is dropped, and room is made.
func (s *scene) tidy(ctx context.Context) error {
	if s.round.cache == cacheNone || s.n%5 != 0 {
		return nil
	}
	err := s.care(ctx, "verify")
	if err != nil && !strings.Contains(err.Error(), "not what was stored") {
		return err
	}
	if err := s.care(ctx, "verify"); err != nil {
		return fmt.Errorf("a second time: %w", err)
	}
	return s.care(ctx, "prune", "--keep=10MB")
}

// care looks after the cache. There may be none in a round that loses it.
func (s *scene) care(ctx context.Context, what string, flags ...string) error {
	err := s.command(ctx, append([]string{"cache", what, "--cache-dir=" + s.cache}, flags...)...)
	if err != nil && s.has(lose) && strings.Contains(err.Error(), "there is no cache at") {
		return nil
	}
	return err
}

// fioRun is a fio that runs beside the readers.
type fioRun struct {
	cmd     *exec.Cmd
	said    bytes.Buffer
	mount   int
	unlucky bool
}

func (s *scene) startFio() error {
	if !slices.Contains(s.engines, s.round.fio) {
		return nil
	}
	for i := range s.mounts {
		f := &fioRun{mount: i, cmd: fio(filepath.Join(s.path("mnt", fmt.Sprint(i)), fioRepo, "release", fioFile), s.round.fio, 2, s.rnd.Uint64()>>1)}
		f.cmd.Stdout, f.cmd.Stderr = &f.said, &f.said
		s.fios = append(s.fios, f)
		s.total.fio++
		if err := f.cmd.Start(); err != nil {
			return err
		}
	}
	return nil
}

func (s *scene) endFio() error {
	for _, f := range s.fios {
		err := within("fio", f.cmd.Wait)
		if err := judgeFio(f.said.String(), err, f.unlucky); err != nil {
			return err
		}
	}
	s.fios = nil
	return nil
}

// abandon ends what a failed round left.
func (s *scene) abandon() {
	for _, r := range s.readers {
		r.cmd.Process.Kill()
	}
	for _, f := range s.fios {
		f.cmd.Process.Kill()
	}
	for _, d := range s.daemons {
		d.cmd.Process.Kill()
		unix.Unmount(d.dir, unix.MNT_DETACH)
	}
}

const tmpfsSize = "8m"

func (s *scene) makeCache() error {
	switch s.round.cache {
	case cacheNone:
		s.cache = "none"
		return nil
	case cacheShared:
		s.cache = s.path("cache")
		return nil
	}
	s.cache = s.path(fmt.Sprintf("cache%d", s.n))
	if s.round.cache != cacheTmpfs {
		return nil
	}
	if err := os.Mkdir(s.cache, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("soak", s.cache, "tmpfs", 0, "mode=0700,size="+tmpfsSize); err != nil && err != unix.EPERM {
		return fmt.Errorf("a small disk: %w", err)
	}
	return nil
}

func (s *scene) dropCache() {
	if s.round.cache != cacheShared && s.round.cache != cacheNone {
		unix.Unmount(s.cache, unix.MNT_DETACH)
		os.RemoveAll(s.cache)
	}
}

// running is a reader.
type running struct {
	cmd       *exec.Cmd
	out, errs bytes.Buffer
	killed    bool
	// unlucky readers were there when their daemon was killed: their operations may fail, but not give wrong bytes.
	unlucky bool
	mount   int
}

func (s *scene) startReaders() error {
	for i := range s.mounts {
		for range s.round.readers {
			if err := s.startReader(i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *scene) startReader(mount int) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	t, err := json.Marshal(task{Mount: s.path("mnt", fmt.Sprint(mount), "demo"), Truth: s.path("truth", "demo"), Seed: s.rnd.Uint64(), Lasts: s.lasts})
	if err != nil {
		return err
	}
	r := &running{cmd: exec.Command(self), mount: mount}
	r.cmd.Env = append(os.Environ(), readerEnv+"=1")
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = bytes.NewReader(t), &r.out, &r.errs
	s.readers = append(s.readers, r)
	s.total.readers++
	return r.cmd.Start()
}

// endReaders waits for the readers and judges what they say.
func (s *scene) endReaders() error {
	for _, r := range s.readers {
		err := within("a reader", r.cmd.Wait)
		if r.killed {
			continue
		}
		if err != nil {
			return fmt.Errorf("reader: %w: %s", err, r.errs.Bytes())
		}
		var o outcome
		if err := json.Unmarshal(r.out.Bytes(), &o); err != nil {
			return fmt.Errorf("reader: %w", err)
		}
		s.total.operations += o.Ops
		s.total.bytes += o.Bytes
		s.total.slowest = max(s.total.slowest, o.Slowest)
		switch {
		case len(o.Wrong) > 0:
			return fmt.Errorf("WRONG BYTES: %q", o.Wrong)
		case len(o.Failed) > 0 && !r.unlucky:
			return fmt.Errorf("reads failed: %q", o.Failed)
		}
	}
	s.readers = nil
	return nil
}

// happen makes an event.
func (s *scene) happen(ctx context.Context, what string) error {
	switch what {
	case restart:
		s.closeHub()
		return s.open(s.faults, s.latency)
	case outage:
		s.closeHub()
		time.Sleep(outageLasts)
		return s.open(s.faults, s.latency)
	case damage:
		return s.damage()
	case lose:
		if s.round.cache == cacheNone {
			return nil
		}
		err := os.RemoveAll(filepath.Join(s.cache, "v1"))
		if errors.Is(err, unix.ENOTEMPTY) { // a daemon is quicker
			return nil
		}
		return err
	case fill:
		return fillDisk(filepath.Join(s.cache, "other"))
	case killOne:
		r := s.readers[s.rnd.IntN(len(s.readers))]
		r.killed = true
		return r.cmd.Process.Kill()
	case crash:
		return s.crash(s.rnd.IntN(len(s.daemons)))
	case check:
		return s.command(ctx, "verify", "--cache-dir="+s.cache, "hf://demo/"+pick(s.rnd, s.releases...).Name)
	case prune:
		return s.prune(ctx)
	}
	return fmt.Errorf("nobody knows how to %s", what)
}

// prune wants the cache emptied while it is used.
func (s *scene) prune(ctx context.Context) error {
	if s.round.cache == cacheNone {
		return nil
	}
	err := s.care(ctx, "prune")
	if err != nil && strings.Contains(err.Error(), cache.ErrInUse.Error()) {
		return nil
	}
	return err
}

// crash kills a daemon under its readers and mounts again in its place.
func (s *scene) crash(i int) error {
	if err := s.daemons[i].kill(); err != nil {
		return err
	}
	s.total.crashes++
	for _, r := range s.readers {
		r.unlucky = r.unlucky || r.mount == i
	}
	for _, f := range s.fios {
		f.unlucky = f.unlucky || f.mount == i
	}
	d, err := s.mount(s.round, i, s.cache)
	if err != nil {
		return err
	}
	s.daemons[i] = d
	return s.startReader(i)
}

// fillDisk writes until there is no room.
func fillDisk(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 64<<10); err == nil; {
		_, err = f.Write(block)
		if info, _ := f.Stat(); err == nil && info.Size() > 16<<20 {
			return nil // where no small disk could be mounted
		}
	}
	if errors.Is(err, unix.ENOSPC) {
		return nil
	}
	return err
}

// damage does something to some files of the cache.
func (s *scene) damage() error {
	files, err := filepath.Glob(filepath.Join(s.cache, "v1", "*", "*.*"))
	if err != nil {
		return err
	}
	if s.require { // a file without its seal is refused
		files = slices.DeleteFunc(files, func(name string) bool { return filepath.Ext(name) == ".seal" })
	}
	for range min(len(files), 1+s.rnd.IntN(5)) {
		if err := s.hurt(files[s.rnd.IntN(len(files))]); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

func (s *scene) hurt(name string) error {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return err
	}
	switch s.rnd.IntN(8) {
	case 0:
		return os.Remove(name)
	case 1:
		return f.Truncate(s.rnd.Int64N(info.Size()))
	case 2:
		return f.Truncate(0)
	}
	for range 1 + s.rnd.IntN(4) {
		var b [1]byte
		at := s.rnd.Int64N(info.Size())
		if _, err := f.ReadAt(b[:], at); err != nil {
			return err
		}
		b[0] ^= 1 << s.rnd.IntN(8)
		if _, err := f.WriteAt(b[:], at); errors.Is(err, unix.ENOSPC) {
			return nil // a hole, and no room to write anything there
		} else if err != nil {
			return err
		}
	}
	return nil
}
