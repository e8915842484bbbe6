package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/sys/mountinfo"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weightfs/fs"
	"weightfs/sources"
)

func newStatusCommand(u *ui) *cobra.Command {
	var watch bool
	c := &cobra.Command{
		Use:     "status [DIR]",
		Short:   "Say what a mount, or every mount, has fetched and served",
		Example: "  weightfs status\n  weightfs status --watch ~/qwen",
		Args:    args(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return u.statusOfAll()
			}
			if watch {
				return u.watchStatus(c.Context(), args[0])
			}
			s, err := readStatus(args[0])
			if err != nil {
				return err
			}
			return u.status(s)
		},
	}
	c.Flags().BoolVar(&watch, "watch", false, "one line a second")
	return c
}

// mountStatus is a mount's status.json and, for those that do not answer, what is wrong.
type mountStatus struct {
	fs.Status
	network sources.Status
	raw     json.RawMessage
}

// statusWait is how long a mount may take to tell its status.
const statusWait = 5 * time.Second

// readStatus reads the status of the mount at dir. It does not wait for ever for one that hangs.
func readStatus(dir string) (mountStatus, error) {
	type answer struct {
		text []byte
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		text, err := os.ReadFile(filepath.Join(dir, ".weightfs", "status.json"))
		got <- answer{text, err}
	}()
	var s mountStatus
	select {
	case a := <-got:
		if errors.Is(a.err, unix.ENOTCONN) {
			return s, hinted{fmt.Errorf("the process behind %s is gone", dir), "weightfs umount " + dir + " cleans up"}
		}
		if errors.Is(a.err, os.ErrNotExist) {
			a.err = os.ErrNotExist
		}
		if a.err != nil {
			return s, hinted{fmt.Errorf("%s is no weightfs mount: %w", dir, a.err), "weightfs status shows every mount"}
		}
		s.raw = a.text
		if err := json.Unmarshal(a.text, &s.Status); err != nil {
			return s, fmt.Errorf("status of %s: %w", dir, err)
		}
		if err := json.Unmarshal(a.text, &struct{ Network *sources.Status }{&s.network}); err != nil {
			return s, fmt.Errorf("status of %s: %w", dir, err)
		}
		return s, nil
	case <-time.After(statusWait):
		return s, fmt.Errorf("%s does not answer", dir)
	}
}

// status prints one mount's status.
func (u *ui) status(s mountStatus) error {
	if u.json {
		u.printf("%s", s.raw)
		return nil
	}
	dir := "no mount"
	if s.Mount != nil {
		dir = s.Mount.Dir
	}
	rows := [][]string{{"mount", oneLine(dir)}}
	for _, x := range s.Sources {
		rows = append(rows, []string{"source", oneLine(sourceText(x))})
	}
	rows = append(rows,
		[]string{"process", fmt.Sprintf("%d, since %s", s.PID, s.Started.Local().Format(time.DateTime))},
		[]string{"fetched", size(s.Bytes.Fetched)},
		[]string{"from cache", size(s.Bytes.Cached)},
		[]string{"served", fmt.Sprintf("%s in %s, %s", size(s.Bytes.Served), counted(int(s.Reads), "read"), counted(int(s.Opens), "open"))},
		[]string{"memory", fmt.Sprintf("%s of %s", size(s.Memory.Cache), size(s.Memory.Limit))},
		[]string{"errors", fmt.Sprint(s.Errors)},
	)
	for _, p := range s.network.Paused {
		rows = append(rows, []string{"waiting", fmt.Sprintf("%s asked for a pause until %s", oneLine(p.Host), p.Until.Local().Format(time.TimeOnly))})
	}
	if s.Mount != nil {
		rows = append(rows,
			[]string{"read-ahead", fmt.Sprintf("%d KiB", s.Mount.ReadAheadKB)},
			[]string{"passthrough", passthroughText(s.Mount.Passthrough)},
			[]string{"if it hangs", fmt.Sprintf("echo 1 > /sys/fs/fuse/connections/%d/abort", s.Mount.Connection)})
	}
	return u.table(rows)
}

// sourceText is a source, its revision, what it holds, and below which directory.
func sourceText(x fs.SourceStatus) string {
	text := x.Source
	if x.Revision != "" {
		text += " " + x.Revision
	}
	text += fmt.Sprintf(" (%s in %s)", size(x.Bytes), counted(int(x.Files), "file"))
	if x.Path != "" {
		text += " in " + x.Path + "/"
	}
	return text
}

func passthroughText(p fs.PassthroughStatus) string {
	switch {
	case !p.On:
		return "off: " + oneLine(p.Why)
	case p.Failed > 0:
		return fmt.Sprintf("%s, %d refused by the kernel: the log says why", counted(int(p.Opens), "open"), p.Failed)
	}
	return counted(int(p.Opens), "open")
}

// statusOfAll prints the status of every weightfs mount that this process can see.
func (u *ui) statusOfAll() error {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("fuse.weightfs"))
	if err != nil {
		return err
	}
	all := []any{}
	for i, m := range mounts {
		s, err := readStatus(m.Mountpoint)
		switch {
		case u.json && err != nil:
			all = append(all, map[string]string{"dir": m.Mountpoint, "error": err.Error()})
		case u.json:
			all = append(all, s.raw)
		case err != nil:
			u.printf("%s: %s\n", oneLine(m.Mountpoint), oneLine(err.Error()))
		default:
			if i > 0 {
				u.printf("\n")
			}
			u.status(s)
		}
	}
	if u.json {
		return u.printJSON(all)
	}
	if len(mounts) == 0 {
		u.printf("nothing is mounted\n")
	}
	return nil
}

// watchStatus prints a line a second until it is interrupted or the mount is gone.
func (u *ui) watchStatus(ctx context.Context, dir string) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var before fs.ByteStatus
	for first := true; ; first = false {
		s, err := readStatus(dir)
		if err != nil {
			return err
		}
		if u.json {
			err = u.printLine(s.raw)
		} else if !first {
			u.printf("fetched %10s/s  cache %10s/s  served %10s/s  memory %10s  errors %d\n", size(s.Bytes.Fetched-before.Fetched),
				size(s.Bytes.Cached-before.Cached), size(s.Bytes.Served-before.Served), size(s.Memory.Cache), s.Errors)
		}
		if before = s.Bytes; err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
