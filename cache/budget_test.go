package cache

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDefaultMemory computes the default budget from what machines and control groups say.
func TestDefaultMemory(t *testing.T) {
	const gib = 1 << 30
	machine := func(kb string) string { return "MemTotal:       " + kb + " kB\nMemFree: 5 kB\n" }
	for _, test := range []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"nothing known", nil, gib},
		{"large machine", map[string]string{"proc/meminfo": machine("67108864")}, 2 * gib},
		{"small machine", map[string]string{"proc/meminfo": machine("4194304")}, gib},
		{"tiny machine", map[string]string{"proc/meminfo": machine("1024")}, 8 << 20},
		{"version 2, limit above", map[string]string{"proc/meminfo": machine("67108864"), "proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "268435456\n"}, 64 << 20},
		{"version 2, inside a container", map[string]string{"proc/meminfo": machine("67108864"), "proc/self/cgroup": "0::/../../x\n",
			"sys/fs/cgroup/memory.max": "1073741824\n"}, 256 << 20},
		{"version 1", map[string]string{"proc/meminfo": machine("67108864"), "proc/self/cgroup": "12:cpu,cpuacct:/c\n9:hugetlb,memory:/m\n0::/\n",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "536870912\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}, 128 << 20},
		{"version 1, no limit", map[string]string{"proc/meminfo": machine("4194304"), "proc/self/cgroup": "9:memory:/m\n",
			"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "9223372036854771712\n"}, gib},
		{"nonsense", map[string]string{"proc/meminfo": "MemTotal: x kB\n", "proc/self/cgroup": "what\n0::/\n", "sys/fs/cgroup/memory.max": "?"}, gib},
	} {
		root := t.TempDir()
		for name, text := range test.files {
			must(t, os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755))
			must(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o644))
		}
		if got := defaultMemory(root); got != test.want {
			t.Errorf("%s: %d MiB, want %d", test.name, got>>20, test.want>>20)
		}
	}
	if got := DefaultMemory(); got < 8<<20 || got > 2*gib {
		t.Errorf("here: %d", got)
	}
}
