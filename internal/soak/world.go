package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/internal/hubtest"
	"weightfs/internal/testrel"
)

// token opens the repositories, all of which are gated; the CDN must never see it.
const token = "hf_soakSoakSoakSoak"

// hubAddr is where the hub listens: an address of loopback that no connection of others has as its own, so that a port stays free while
// the hub is away.
const hubAddr = "127.83.83.83:0"

// totals is what was done.
type totals struct {
	began                                         time.Time
	rounds                                        int
	requests, faults, leaks                       atomic.Int64 // of the hub; leaks are tokens where they must not be
	events, daemons, readers, crashes, operations int64
	behind, sealed, fio                           int64 // rounds behind a proxy, rounds of sealed files, runs of fio
	bytes                                         int64
	slowest                                       time.Duration
}

func (t *totals) String() string {
	return fmt.Sprintf("%d rounds in %v: %d events (%d daemons killed), %d requests, %d faults injected, %d daemons, %d readers, %d operations, %d bytes compared, slowest operation %v; %d rounds behind proxies, %d of sealed files, %d runs of fio",
		t.rounds, time.Since(t.began).Round(time.Second), t.events, t.crashes, t.requests.Load(), t.faults.Load(), t.daemons, t.readers, t.operations, t.bytes,
		t.slowest.Round(time.Millisecond), t.behind, t.sealed, t.fio)
}

// world is what outlives a round: the program, the truth, a hub's address and a cache directory.
type world struct {
	bin, home string
	total     *totals
	releases  []*testrel.Release
	addr      string         // of the hub, the same in all rounds
	front     *proxy         // before the hub in this round; nil is none
	pattern   []hubtest.File // of fioRepo
	engines   []string       // of fio
	absent    []string       // what is not installed
	// connections is where the kernel shows those of FUSE.
	connections string

	mu  sync.Mutex // guards hub
	hub *hubtest.Hub
}

func (w *world) path(elem ...string) string {
	return filepath.Join(append([]string{w.home}, elem...)...)
}

// views are the directories of a release that readers read.
var views = []string{"release", "bf16", "resident", "experts/native", "experts/bf16"}

// prepare writes the truth: every file of the views, copied while nothing fails, and checked against the releases' closed forms.
func (w *world) prepare(ctx context.Context) error {
	if err := w.seeConnections(); err != nil {
		return err
	}
	if err := w.writePattern(); err != nil {
		return err
	}
	for _, p := range proxies {
		if _, err := exec.LookPath(p.program); err != nil {
			w.absent = append(w.absent, p.name)
		}
	}
	if err := w.open(&hubtest.Plan{}, 0); err != nil {
		return err
	}
	defer w.closeHub()
	for _, r := range w.releases {
		for _, v := range views {
			to := w.path("truth", "demo", r.Name, v)
			if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
				return err
			}
			err := w.command(ctx, "cp", "--quiet", "--cache-dir=none", "hf://demo/"+r.Name, v, to)
			if err != nil && strings.Contains(err.Error(), "no routed experts") {
				continue // dense releases have no experts
			}
			if err != nil {
				return err
			}
		}
		if err := checkTruth(w.path("truth", "demo", r.Name), r); err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
	}
	return nil
}

// open starts the hub at the address it had before.
func (w *world) open(p *hubtest.Plan, latency time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	cfg := hubtest.Config{Addr: w.addr, Latency: latency, Plan: p, Log: w.count}
	if w.front != nil {
		cfg.CDNAddr, cfg.PublicURL, cfg.PublicCDN = w.front.cdn, "http://"+w.front.hubFront, "http://"+w.front.cdnFront
	}
	h, err := hubtest.Start(cfg)
	if err != nil {
		return err
	}
	for _, r := range w.releases {
		h.Add(hubtest.Repo{Name: "demo/" + r.Name, Access: hubtest.Gated, Token: token, Files: hubtest.FilesOf(r)})
	}
	if w.pattern != nil {
		h.Add(hubtest.Repo{Name: fioRepo, Access: hubtest.Gated, Token: token, Files: w.pattern})
	}
	w.hub, w.addr = h, strings.TrimPrefix(h.URL, "http://")
	return nil
}

func (w *world) closeHub() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hub != nil {
		w.hub.Close()
	}
	w.hub = nil
}

// seeConnections mounts what shows FUSE's connections, where it is not mounted.
func (w *world) seeConnections() error {
	w.connections = "/sys/fs/fuse/connections"
	if all, err := os.ReadDir(w.connections); err == nil && len(all) > 0 || os.Geteuid() != 0 {
		return nil
	}
	w.connections = w.path("connections")
	if err := os.Mkdir(w.connections, 0o777); err != nil {
		return err
	}
	return unix.Mount("fusectl", w.connections, "fusectl", 0, "")
}

func (w *world) close() {
	w.closeHub()
	unix.Unmount(w.path("connections"), unix.MNT_DETACH)
	for i := range 2 {
		unix.Unmount(w.path("mnt", fmt.Sprint(i)), unix.MNT_DETACH)
	}
}

func (w *world) count(e hubtest.Entry) {
	w.total.requests.Add(1)
	if e.Kind == "data" && e.Auth {
		w.total.leaks.Add(1)
	}
}

// environment is that of a user who knows only the stand-in hub.
func (w *world) environment() []string {
	var env []string
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		if !strings.HasPrefix(name, "HF_") && !strings.HasPrefix(name, "HUGGING") && !strings.HasSuffix(name, "_PROXY") {
			env = append(env, e)
		}
	}
	endpoint := "http://" + w.addr
	if w.front != nil {
		endpoint = "http://" + w.front.hubFront
	}
	return append(env, "HF_ENDPOINT="+endpoint, "HF_HUB_OFFLINE=0", "HF_TOKEN="+token, "HF_HOME="+w.path("hf"), "XDG_CACHE_HOME="+w.path("xdg"),
		"GORACE=exitcode=66", "GOTRACEBACK=all")
}

// sources are what is mounted.
func (w *world) sources() (out []string) {
	for _, r := range w.releases {
		out = append(out, "hf://demo/"+r.Name)
	}
	if w.pattern != nil {
		out = append(out, "hf://"+fioRepo)
	}
	return out
}

// command runs the program to its end.
func (w *world) command(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(ctx, w.bin, args...)
	c.Env = w.environment()
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("weightfs %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// patience is how long anything may take: the deadline of a read and some more.
const patience = 100 * time.Second

// errEnded says that there is nothing to wait for.
var errEnded = errors.New("the daemon ended")

// eventually polls a condition.
func eventually(what string, ok func() error) error {
	err := ok()
	for began := time.Now(); err != nil && !errors.Is(err, errEnded) && time.Since(began) < patience; err = ok() {
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("not within %v: %s: %w", patience, what, err)
	}
	return nil
}

// within runs what may hang: in a call into a mount no context helps.
func within(what string, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errors.New(what + " hangs")
	}
}
