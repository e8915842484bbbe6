package fs

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
