package cache

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultMemory is the default budget: a quarter of the machine's memory or of the control group's limit, at most 2 GiB.
func DefaultMemory() int64 { return defaultMemory("/") }

func defaultMemory(root string) int64 {
	total := memTotal(filepath.Join(root, "proc/meminfo"))
	if limit := cgroupLimit(root); limit > 0 && limit < total {
		total = limit
	}
	return min(2<<30, max(8<<20, total/4)) &^ (cellSize - 1)
}

// memTotal reads the machine's memory, 4 GiB if it cannot.
func memTotal(path string) int64 {
	b, _ := os.ReadFile(path)
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) >= 2 && f[0] == "MemTotal:" {
			if kb, err := strconv.ParseInt(f[1], 10, 64); err == nil && kb > 0 {
				return kb << 10
			}
		}
	}
	return 4 << 30
}

// cgroupLimit is the least memory limit of the process's control group and those above it, version 1 or 2; 0 if there is none.
func cgroupLimit(root string) int64 {
	f, err := os.Open(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return 0
	}
	defer f.Close()
	var least int64
	for s := bufio.NewScanner(f); s.Scan(); {
		id, rest, _ := strings.Cut(s.Text(), ":")
		controllers, path, ok := strings.Cut(rest, ":")
		if !ok {
			continue
		}
		base, file := filepath.Join(root, "sys/fs/cgroup"), "memory.max"
		if id != "0" || controllers != "" {
			if !strings.Contains(","+controllers+",", ",memory,") {
				continue
			}
			base, file = filepath.Join(base, "memory"), "memory.limit_in_bytes"
		}
		least = lesser(least, limitAbove(base, path, file))
	}
	return least
}

// limitAbove is the least limit between the group at path and the root of its tree. Inside a container the path may not exist: then the
// root is the container's own group.
func limitAbove(base, path, file string) int64 {
	var least int64
	for dir := filepath.Join("/", path); ; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(base, dir, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil {
				least = lesser(least, n)
			}
		}
		if dir == "/" {
			return least
		}
	}
}

// lesser is the lesser of two limits, 0 being none.
func lesser(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
