package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/internal/testrel"
)

// bench is one run: its directory, its processes and what was measured.
type bench struct {
	ctx      context.Context
	opt      options
	dir      string
	weightfs string
	started  time.Time

	samples  map[string][]float64
	notes    map[string]string // why something was not measured
	peaks    []peak
	hubs     map[string]*hub
	mounts   []*mount // alive, of the workload that runs
	releases map[string]*testrel.Release
	blocks   map[string]explanation // of experts, by release and path
	serial   int
	ballast  ballast
}

// peak is the most resident memory that a daemon had, and its budget, in bytes.
type peak struct {
	Workload string `json:"workload"`
	RSS      int64  `json:"rss"`
	Budget   int64  `json:"budget"`
}

func newBench(ctx context.Context, o options) (*bench, error) {
	b := &bench{ctx: ctx, opt: o, started: time.Now(), samples: map[string][]float64{}, notes: map[string]string{}, hubs: map[string]*hub{},
		releases: map[string]*testrel.Release{}, blocks: map[string]explanation{}}
	var err error
	if b.weightfs, err = filepath.Abs(o.weightfs); err != nil {
		return nil, err
	}
	if _, err := os.Stat(b.weightfs); err != nil {
		return nil, fmt.Errorf("%w; make builds it", err)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("only root can set the read-ahead of a mount, which some workloads need")
	}
	dir, err := filepath.Abs(o.dir) // mounts are found by their whole path
	if err != nil {
		return nil, err
	}
	if b.dir, err = os.MkdirTemp(dir, "weightfs-bench-"); err != nil {
		return nil, err
	}
	b.note("in %s (%s)", b.dir, fsType(b.dir))
	return b, nil
}

func (b *bench) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.started).Seconds(), fmt.Sprintf(format, args...))
}

// add records one sample.
func (b *bench) add(key string, v float64) {
	b.samples[key] = append(b.samples[key], v)
	b.note("  %-40s %.4g", key, v)
}

// release is a release of internal/testrel, made once.
func (b *bench) release(name string) *testrel.Release {
	if b.releases[name] == nil {
		b.releases[name] = testrel.ByName(name)[0]
	}
	return b.releases[name]
}

// root is the directory with the releases as files, written when they are first needed.
func (b *bench) root() (string, error) {
	root := filepath.Join(b.dir, "releases")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	b.note("writing releases")
	for _, name := range []string{fp8, mxfp4, gptq} {
		if err := testrel.WriteDir(filepath.Join(root, "demo", name), b.release(name)); err != nil {
			return "", err
		}
	}
	return root, nil
}

// fresh is a new empty directory.
func (b *bench) fresh(name string) string {
	b.serial++
	dir := filepath.Join(b.dir, fmt.Sprintf("%03d-%s", b.serial, name))
	if err := os.Mkdir(dir, 0o777); err != nil {
		panic(err) // a directory of our own, with a name of our own
	}
	return dir
}

// process is a child with its output.
type process struct {
	*exec.Cmd
	log  *os.File
	done chan struct{}
	err  error
}

// start starts a program whose output goes to a file. It ends with us, and is in a group of its own so that an interrupt is ours alone.
func (b *bench) start(name string, env []string, program string, args ...string) (*process, error) {
	b.serial++
	log, err := os.Create(filepath.Join(b.dir, fmt.Sprintf("%03d-%s.log", b.serial, name)))
	if err != nil {
		return nil, err
	}
	c := exec.Command(program, args...)
	c.Env, c.Stdout, c.Stderr = append(cleanEnv(), env...), log, log
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Start(); err != nil {
		log.Close()
		return nil, err
	}
	p := &process{Cmd: c, log: log, done: make(chan struct{})}
	go func() {
		p.err = c.Wait()
		log.Close()
		close(p.done)
	}()
	return p, nil
}

// output is what the process has said.
func (p *process) output() string {
	text, _ := os.ReadFile(p.log.Name())
	return strings.TrimSpace(string(text))
}

// end asks a process to end, and ends it if it does not.
func (p *process) end() {
	p.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(5 * time.Second):
		p.Process.Kill()
		<-p.done
	}
}

// run runs a program to its end and returns its standard output.
func (b *bench) run(env []string, program string, args ...string) ([]byte, error) {
	c := exec.CommandContext(b.ctx, program, args...)
	var out, errs bytes.Buffer
	c.Env, c.Stdout, c.Stderr = append(cleanEnv(), env...), &out, &errs
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, lines[len(lines)-1])
	}
	return out.Bytes(), nil
}

// cleanEnv is the environment without what would lead programs elsewhere.
func cleanEnv() []string {
	return slices.DeleteFunc(os.Environ(), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		name = strings.ToUpper(name)
		return strings.HasPrefix(name, "HF_") || strings.HasSuffix(name, "_PROXY") || strings.HasPrefix(name, "HUGGING") || strings.HasPrefix(name, "RCLONE_")
	})
}

// waitFor polls until ok, the process ends or a minute has passed.
func (b *bench) waitFor(p *process, what string, ok func() bool) error {
	for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %v: %s", what, p.err, p.output())
		case <-b.ctx.Done():
			return b.ctx.Err()
		default:
		}
		if time.Now().After(limit) {
			return fmt.Errorf("%s is not there after a minute: %s", what, p.output())
		}
	}
	return nil
}

// endAll ends the mounts of a workload.
func (b *bench) endAll() {
	for _, m := range slices.Clone(b.mounts) {
		m.end()
	}
}

// cleanUp ends everything and removes the directory.
func (b *bench) cleanUp() {
	b.endAll()
	for _, h := range b.hubs {
		h.process.end()
	}
	if b.opt.keep {
		b.note("left behind: %s", b.dir)
		return
	}
	if err := os.RemoveAll(b.dir); err != nil {
		b.note("%v", err)
	}
}

// peakRSS is the most resident memory of a process in its life.
func peakRSS(pid int) int64 { return procStatus(pid, "VmHWM:") }

// rss is its resident memory now.
func rss(pid int) int64 { return procStatus(pid, "VmRSS:") }

func procStatus(pid int, field string) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] == field {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

func fsType(dir string) string {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return "unknown"
	}
	names := map[int64]string{unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs", unix.TMPFS_MAGIC: "tmpfs", unix.OVERLAYFS_SUPER_MAGIC: "overlay"}
	if n := names[st.Type]; n != "" {
		return n
	}
	return fmt.Sprintf("type %#x", st.Type)
}
