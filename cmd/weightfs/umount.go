package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"weightfs/fs"
)

func newUmountCommand(u *ui) *cobra.Command {
	var lazy bool
	c := &cobra.Command{
		Use:     "umount DIR",
		Short:   "Unmount, a dead mount too",
		Long:    "Unmount, a dead mount too, and wait for its process to end.",
		Example: "  weightfs umount ~/qwen",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			pid := 0
			if s, err := readStatus(args[0]); err == nil {
				pid = s.PID
			}
			err := unmount(args[0], lazy)
			if errors.Is(err, fs.ErrBusy) {
				return hinted{err, "end what reads there, or weightfs umount --lazy: it is gone at once and ends with its last user"}
			}
			if err == nil && pid > 0 && !lazy {
				waitFor(c.Context(), pid)
			}
			return err
		},
	}
	c.Flags().BoolVar(&lazy, "lazy", false, "also while files are in use")
	return c
}

// busyWait is how long a mount in use may take to be left: a program that has just ended may still hold it.
const busyWait = time.Second

func unmount(dir string, lazy bool) error {
	for start := time.Now(); ; time.Sleep(busyWait / 20) {
		err := fs.Unmount(dir, lazy)
		if !errors.Is(err, fs.ErrBusy) || time.Since(start) > busyWait {
			return err
		}
	}
}

// exitWait is how long umount waits for the process behind the mount to end, so that the cache is free for the next one.
const exitWait = 10 * time.Second

// waitFor waits until the process has ended.
func waitFor(ctx context.Context, pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeout(ctx, exitWait)
	defer cancel()
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200)
		if n > 0 || err != nil && err != unix.EINTR {
			return
		}
	}
}
