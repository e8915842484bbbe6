package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// runDaemon starts this program again in the background and returns when the mount answers, or with the reason why it does not.
func (f *mountFlags) runDaemon(ctx context.Context, u *ui, sources []string, dir string) error {
	if f.allowOther {
		u.notef("%s", warnOthers)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	ready, theirs, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(self, f.daemonArgs(sources, dir)...)
	cmd.Args[0] = "weightfs"
	cmd.ExtraFiles = []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := errors.Join(cmd.Start(), theirs.Close()); err != nil {
		return fmt.Errorf("starting the daemon: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { cmd.Process.Kill() })
	defer stop()
	var answer failure
	if err := json.NewDecoder(ready).Decode(&answer); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the daemon ended without a word (%v)", cmd.Wait())
	}
	if answer.Exit != exitOK {
		cmd.Wait()
		return reported{answer}
	}
	return nil
}

// daemonArgs are the arguments of the daemon: the same flags, with absolute paths where they matter later.
func (f *mountFlags) daemonArgs(sources []string, dir string) []string {
	out := []string{"mount", "--ready-fd", "3"}
	flag := func(name, value string) {
		if value != "" {
			out = append(out, "--"+name+"="+value)
		}
	}
	flag("view", f.view)
	flag("cache-dir", f.cacheDir)
	flag("token-file", f.tokenFile)
	flag("on-error", f.onError.String())
	flag("passthrough", f.pass.String())
	for _, p := range f.presets {
		flag("preset", p)
	}
	for _, glob := range f.warm {
		flag("warm", glob)
	}
	for name, n := range map[string]sizeFlag{"cache-size": f.cacheSize, "memory": f.memory} {
		if n > 0 {
			flag(name, strconv.FormatInt(int64(n), 10))
		}
	}
	for name, set := range map[string]bool{"allow-other": f.allowOther, "require-sealed": f.requireSealed, "offline": f.offline, "insecure-token": f.insecureToken, "allow-private-redirects": f.privateRedirects} {
		if set {
			flag(name, "true")
		}
	}
	return append(append(append(out, "--"), sources...), dir)
}

// fstabMount is mount.weightfs SOURCE DIR [-sfnv] [-o OPTIONS], as mount(8) calls it. Its exit codes are those of mount(8).
func fstabMount(ctx context.Context, u *ui, argv []string) int {
	var f mountFlags
	source, dir, err := f.parseFstab(argv)
	if err == nil {
		err = f.runDaemon(ctx, u, []string{source}, dir)
	}
	if u.end(err) != exitOK {
		return exitMount
	}
	return exitOK
}

func (f *mountFlags) parseFstab(argv []string) (source, dir string, err error) {
	var places []string
	for i := 0; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "-o" && i+1 < len(argv):
			i++
			for _, o := range strings.Split(argv[i], ",") {
				if err := f.fstabOption(o); err != nil {
					return "", "", err
				}
			}
		case strings.HasPrefix(a, "-"):
			// -s, -f, -n, -v of mount(8) change nothing here.
		default:
			places = append(places, a)
		}
	}
	if len(places) != 2 {
		return "", "", usageError{"mount.weightfs takes a SOURCE and a DIR", "in fstab: hf://org/name /mnt/m weightfs _netdev,view=bf16 0 0"}
	}
	if f.tokenFile, err = absolute(f.tokenFile); err == nil && f.cacheDir != noCacheDir {
		f.cacheDir, err = absolute(f.cacheDir)
	}
	return places[0], places[1], err
}

func absolute(name string) (string, error) {
	if name == "" {
		return "", nil
	}
	return filepath.Abs(name)
}

// fstabOption takes one of the options behind -o. Those that mount(8) or a mount of this kind has anyway are accepted.
func (f *mountFlags) fstabOption(o string) error {
	key, value, _ := strings.Cut(o, "=")
	switch key {
	case "view":
		f.view = value
		return checkView(value)
	case "cache_dir":
		f.cacheDir = value
	case "cache_size":
		return f.cacheSize.Set(value)
	case "memory":
		return f.memory.Set(value)
	case "token_file":
		f.tokenFile = value
	case "on_error":
		return f.onError.Set(value)
	case "allow_other":
		f.allowOther = true
	case "offline":
		f.offline = true
	case "token":
		return usageError{"a token in mount options is seen by every user", "write token_file=FILE"}
	case "", "defaults", "ro", "rw", "dev", "nodev", "suid", "nosuid", "exec", "noexec", "atime", "noatime", "relatime", "auto", "noauto",
		"user", "nouser", "users", "owner", "group", "_netdev", "nofail", "default_permissions":
	default:
		if !strings.HasPrefix(key, "x-") {
			return usageError{fmt.Sprintf("unknown mount option %q", key), "known: view, cache_dir, cache_size, memory, token_file, on_error, allow_other, offline"}
		}
	}
	return nil
}
