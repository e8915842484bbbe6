package fs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Holders says which processes use files below a directory, as far as this user may know: "name (pid)", in the order of their numbers; "this command" if it
// was started there. It reads /proc only, nothing below the directory.
func Holders(dir string) []string {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []string
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		proc := filepath.Join("/proc", p.Name())
		switch {
		case err != nil || !holds(proc, dir):
		case pid == os.Getpid():
			out = append(out, "this command")
		default:
			name, _ := os.ReadFile(filepath.Join(proc, "comm"))
			out = append(out, fmt.Sprintf("%s (%d)", bytes.TrimSpace(name), pid))
		}
	}
	return out
}

// holds says whether a process stands in dir, or has a file below it open or mapped.
func holds(proc, dir string) bool {
	links := []string{proc + "/cwd", proc + "/root", proc + "/exe"}
	if open, err := filepath.Glob(proc + "/fd/*"); err == nil {
		links = append(links, open...)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && below(to, dir) {
			return true
		}
	}
	maps, _ := os.ReadFile(proc + "/maps")
	for line := range bytes.Lines(maps) {
		if i := bytes.IndexByte(line, '/'); i >= 0 && below(strings.TrimSuffix(string(line[i:]), "\n"), dir) {
			return true
		}
	}
	return false
}

func below(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// busy is the error of a mount in use: it names its users.
func busy(dir string) error {
	if m := mountBelow(dir); m != "" {
		return fmt.Errorf("unmount %s: %w: %s is mounted below it and has to go first", dir, ErrBusy, m)
	}
	users := Holders(dir)
	if len(users) == 0 {
		return fmt.Errorf("unmount %s: %w", dir, ErrBusy)
	}
	const most = 5
	if more := len(users) - most; more > 0 {
		users = append(users[:most], fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("unmount %s: %w by %s", dir, ErrBusy, strings.Join(users, ", "))
}

// mountBelow is a mount point below a directory, "" if there is none.
func mountBelow(dir string) string {
	found, err := mountinfo.GetMounts(func(i *mountinfo.Info) (skip, stop bool) {
		return i.Mountpoint == dir || !below(i.Mountpoint, dir), false
	})
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[len(found)-1].Mountpoint
}

// copies is one process, "name (pid)", of every other mount namespace that has a mount with the device number.
func copies(major, minor uint32) (out []string) {
	device := fmt.Sprintf(" %d:%d ", major, minor)
	seen := map[string]bool{}
	if own, err := os.Readlink("/proc/self/ns/mnt"); err == nil {
		seen[own] = true
	}
	procs, _ := os.ReadDir("/proc")
	for _, p := range procs {
		proc := filepath.Join("/proc", p.Name())
		space, err := os.Readlink(proc + "/ns/mnt")
		if err != nil || seen[space] {
			continue
		}
		seen[space] = true
		if mounts, err := os.ReadFile(proc + "/mountinfo"); err == nil && bytes.Contains(mounts, []byte(device)) {
			name, _ := os.ReadFile(proc + "/comm")
			out = append(out, fmt.Sprintf("%s (%s)", bytes.TrimSpace(name), p.Name()))
		}
	}
	return out
}
