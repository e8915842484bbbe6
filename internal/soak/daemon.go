package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// daemon is one weightfs mount.
type daemon struct {
	dir   string
	cmd   *exec.Cmd
	said  string // the file with what it prints
	ended chan error
}

// status is the part of status.json that is looked at.
type status struct {
	PID    int
	Errors int64
	Panics int64
	Mount  struct{ Connection int }
	Cache  struct{ Pinned, Waiting, CorruptBlobs int64 }
}

// mount starts a daemon on the i-th directory and waits until it answers.
func (w *world) mount(p round, i int, cache string) (*daemon, error) {
	d := &daemon{dir: w.path("mnt", strconv.Itoa(i)), said: w.path(fmt.Sprintf("daemon%d.log", i)), ended: make(chan error, 1)}
	if err := os.Mkdir(d.dir, 0o777); err != nil && !os.IsExist(err) && !errors.Is(err, syscall.ENOTCONN) {
		return nil, err
	}
	args := []string{"mount", "--cache-dir=" + cache, "--cache-size=1G", "--memory=" + strconv.Itoa(p.memory<<20)}
	if p.cache == cacheTiny {
		args[2] = "--cache-size=2M"
	}
	if !p.through {
		args = append(args, "--passthrough=off")
	}
	if p.require {
		args = append(args, "--require-sealed")
	}
	d.cmd = exec.Command(w.bin, append(append(args, w.sources()...), d.dir)...)
	d.cmd.Env = w.environment()
	said, err := os.Create(d.said)
	if err != nil {
		return nil, err
	}
	defer said.Close()
	d.cmd.Stdout, d.cmd.Stderr = said, said
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { d.ended <- d.cmd.Wait(); close(d.ended) }()
	w.total.daemons++
	err = eventually("a mount that answers", func() error {
		select {
		case err := <-d.ended:
			return fmt.Errorf("%w: %v", errEnded, err)
		default:
		}
		s, err := d.status()
		if err == nil && s.PID != d.cmd.Process.Pid {
			err = fmt.Errorf("process %d answers", s.PID)
		}
		return err
	})
	return d, d.explained(err)
}

func (d *daemon) status() (s status, err error) {
	b, err := os.ReadFile(filepath.Join(d.dir, ".weightfs/status.json"))
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	return s, err
}

// explained adds what the daemon printed to an error.
func (d *daemon) explained(err error) error {
	if err == nil {
		return nil
	}
	said, _ := os.ReadFile(d.said)
	return fmt.Errorf("%w\n%s", err, said[max(0, len(said)-40_000):])
}

// kill ends the daemon as the kernel does when memory is short.
func (d *daemon) kill() error {
	d.cmd.Process.Kill()
	select {
	case <-d.ended:
		return nil
	case <-time.After(patience):
		return errors.New("a killed daemon does not end")
	}
}

// calm checks that after the readers nothing waits, nothing is held, and no read failed.
func (d *daemon) calm(connections string) error {
	return eventually("a daemon at rest", func() error {
		s, err := d.status()
		if err != nil {
			return err
		}
		waiting, err := os.ReadFile(filepath.Join(connections, strconv.Itoa(s.Mount.Connection), "waiting"))
		switch {
		case err != nil && os.Geteuid() == 0:
			return err
		case err == nil && strings.TrimSpace(string(waiting)) != "0":
			return fmt.Errorf("%s requests wait", strings.TrimSpace(string(waiting)))
		case s.Cache.Pinned != 0 || s.Cache.Waiting != 0:
			return fmt.Errorf("%d bytes in use, %d gathers wait", s.Cache.Pinned, s.Cache.Waiting)
		}
		return nil
	})
}

// stop unmounts, and checks how the daemon ends and what it said.
func (d *daemon) stop(w *world) error {
	for range 50 { // who looked at the mount last may still hold it
		if err := syscall.Kill(d.cmd.Process.Pid, syscall.SIGTERM); err != nil {
			break
		}
		select {
		case err := <-d.ended:
			if err != nil {
				return fmt.Errorf("the daemon ended: %w", err)
			}
			return d.silent()
		case <-time.After(2 * time.Second):
		}
	}
	seen := d.seenBy()
	syscall.Kill(d.cmd.Process.Pid, syscall.SIGQUIT) // it says what its goroutines do
	<-d.ended
	return fmt.Errorf("the daemon does not end; processes in other mount namespaces that see the mount: %v", seen)
}

// seenBy is the processes whose mount namespace has the mount: a copy of it keeps a daemon alive.
func (d *daemon) seenBy() (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/mountinfo")
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil && strings.Contains(string(b), " "+d.dir+" ") {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}

// silent checks that the daemon printed nothing that it must not.
func (d *daemon) silent() error {
	said, err := os.ReadFile(d.said)
	if err != nil {
		return err
	}
	for _, bad := range []string{"panic", "DATA RACE", token, "Signature=", "Key-Pair-Id="} {
		if strings.Contains(string(said), bad) {
			return fmt.Errorf("the daemon said %q", bad)
		}
	}
	return nil
}
